// Tells the thread sanitizer that a device accesses memory here. No thread of the program does, and
// a completion or a doorbell orders the two sides. It costs nothing in other builds.
#pragma once

#ifdef __SANITIZE_THREAD__
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace cxemu {

class DmaAccess {
 public:
#ifdef __SANITIZE_THREAD__
  DmaAccess() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~DmaAccess() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  DmaAccess() {}
  ~DmaAccess() {}
#endif
  DmaAccess(const DmaAccess&) = delete;
  DmaAccess& operator=(const DmaAccess&) = delete;
};

}  // namespace cxemu

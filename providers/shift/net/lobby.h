// Places for connections whose other end has proved nothing yet. A process has few of them, so that
// strangers cannot use up its descriptors; and when all are taken, the oldest of the source that
// holds most gives way, so that a crowd keeps no honest peer out. Only the control loop uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <utility>

namespace shift::net {

class Lobby {
  struct Place {
    uint32_t source;
    std::function<void()> leave;
  };
  using Places = std::list<Place>;

 public:
  explicit Lobby(size_t places) : max_(places) {}
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  // A place that is taken as long as the Seat lives; the Lobby outlives it.
  class Seat {
   public:
    Seat() = default;
    Seat(Lobby& lobby, Places::iterator place) : lobby_(&lobby), place_(place) {}
    Seat(Seat&& other) noexcept
        : lobby_(std::exchange(other.lobby_, nullptr)), place_(other.place_) {}
    Seat& operator=(Seat&& other) noexcept {
      std::swap(lobby_, other.lobby_);
      std::swap(place_, other.place_);
      return *this;
    }
    ~Seat() {
      if (lobby_ != nullptr) lobby_->taken_.erase(place_);
    }

   private:
    Lobby* lobby_ = nullptr;
    Places::iterator place_;
  };

  // Takes a place for a connection from `source`. When another one needs the place, `leave` runs
  // from inside that other call, and has to destroy the Seat and the connection.
  [[nodiscard]] Seat sit(uint32_t source, std::function<void()> leave);
  // Lets the connection leave whose place is needed first. Returns false when no place is taken.
  bool make_room();
  size_t taken() const { return taken_.size(); }

 private:
  const size_t max_;
  Places taken_;  // the oldest first
};

}  // namespace shift::net

// Looks for the processes that own remote QPs. It asks over the channels that exist, dials where
// there is none, and repeats both until a deadline. Many QPs between two processes cost one
// connection.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "net/find_request.h"
#include "net/reactor.h"
#include "net/rendezvous.h"
#include "wire/messages.h"

namespace shift::net {

class Channel;

class Finder {
 public:
  // What the finder needs of the network that it searches for.
  class Host {
   public:
    virtual ~Host() = default;
    virtual const wire::Instance& own_instance() const = 0;
    virtual bool owns_qp(const wire::QpName& name) = 0;
    virtual Channel* self_channel() = 0;
    // Channels whose peer was seen at this address.
    virtual std::vector<Channel*> channels_at(uint32_t ip_be) = 0;
    // Lets a dialed connection join the channel of its peer, and makes the channel when it is
    // missing. Returns null when the connection could not join.
    virtual Channel* join_dialed(Joining joining) = 0;
  };

  Finder(Reactor& reactor, Rendezvous& rendezvous, Host& host)
      : reactor_(reactor), rendezvous_(rendezvous), host_(host) {}
  ~Finder();
  Finder(const Finder&) = delete;
  Finder& operator=(const Finder&) = delete;

  void start(const FindRequest& request, FindCallback callback);
  // Takes an answer to a question that was asked over the channel.
  void on_reply(Channel& channel, const wire::HelloReply& reply);
  void on_channel_down(const wire::Instance& peer);
  // Ends every search with kStopped.
  void stop();

 private:
  using AddressPair = std::pair<uint32_t, uint32_t>;  // local, remote address

  struct Find {
    FindRequest request;
    FindCallback callback;
    AddressPair pair;
    std::set<wire::Instance> asked;  // channels asked in this attempt
    std::set<wire::Instance> open;   // channels that owe an answer, however late
    bool asking = false;             // the attempt waits for answers before it dials
    bool waiting = false;            // it waits for another search's dial over this pair
    int nobody = 0;                  // failures in a row with kNoShift or kNoAnswer
    int attempts = 0;
    FindError last = FindError::kUnreachable;
    Reactor::TimerId timer = 0;  // of the end of the questions, or of the next attempt
    Reactor::TimerId deadline = 0;
  };
  using FindPtr = std::shared_ptr<Find>;

  wire::Hello hello_for(const Find& find) const;
  void attempt(const FindPtr& find);
  void ask_subnet(const FindPtr& find, uint32_t local_ip_be);
  void asking_end(const FindPtr& find);
  void attempt_dial(const FindPtr& find);
  void on_dialed(AddressPair pair, const std::weak_ptr<Find>& dialer, DialError error,
                 Joining joining);
  void attempt_failed(const FindPtr& find, FindError error);
  void finish(const FindPtr& find, Channel* channel, FindError error);
  std::vector<FindPtr> take_waiting(AddressPair pair);

  Reactor& reactor_;
  Rendezvous& rendezvous_;
  Host& host_;
  // The key is the remote and the local name; there can be several searches for one pair of names.
  std::multimap<std::pair<wire::QpName, wire::QpName>, FindPtr> finds_;
  std::map<AddressPair, Rendezvous::DialId> dials_;  // at most one over each pair
};

}  // namespace shift::net

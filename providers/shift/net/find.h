// Looks for the processes behind remote QPs: asks the channels that are there already, dials where
// there is none, repeats until a deadline. Many QPs between two processes cost one connection.
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
  // What the finder needs of the network it searches for.
  class Host {
   public:
    virtual ~Host() = default;
    virtual const wire::Instance& own_instance() const = 0;
    virtual bool owns_qp(const wire::QpName& name) = 0;
    virtual Channel* self_channel() = 0;
    // Channels whose peer was seen at this address.
    virtual std::vector<Channel*> channels_at(uint32_t ip_be) = 0;
    // A dialed connection joins the channel of its peer, which is made when missing; null when it
    // could not.
    virtual Channel* join_dialed(UniqueFd fd, const wire::Instance& peer, uint32_t local_ip_be,
                                 uint32_t remote_ip_be) = 0;
  };

  Finder(Reactor& reactor, Rendezvous& rendezvous, Host& host)
      : reactor_(reactor), rendezvous_(rendezvous), host_(host) {}
  ~Finder();
  Finder(const Finder&) = delete;
  Finder& operator=(const Finder&) = delete;

  void start(const FindRequest& request, FindCallback callback);
  // An answer to a question that was asked over a channel.
  void on_reply(Channel& channel, const wire::HelloReply& reply);
  void on_channel_down(const wire::Instance& peer);
  // Every search ends with kStopped.
  void stop();

 private:
  using AddressPair = std::pair<uint32_t, uint32_t>;  // local, remote address

  struct Find {
    FindRequest request;
    FindCallback callback;
    AddressPair pair;
    std::set<wire::Instance> asked;  // channels asked in this attempt
    std::set<wire::Instance> open;   // channels that owe an answer; late ones are welcome
    bool asking = false;             // the attempt waits for answers, before it dials
    bool waiting = false;            // for another search's dial over the same pair
    int nobody = 0;                  // dials in a row that nobody listened to
    int attempts = 0;
    FindError last = FindError::kUnreachable;
    Reactor::TimerId timer = 0;  // end of the questions, or the next attempt
    Reactor::TimerId deadline = 0;
  };
  using FindPtr = std::shared_ptr<Find>;

  wire::Hello hello_for(const Find& find) const;
  void attempt(const FindPtr& find);
  void ask_subnet(const FindPtr& find, uint32_t local_ip_be);
  void asking_end(const FindPtr& find);
  void attempt_dial(const FindPtr& find);
  void on_dialed(AddressPair pair, const std::weak_ptr<Find>& dialer, DialError error, UniqueFd fd,
                 const wire::Instance& peer);
  void attempt_failed(const FindPtr& find, FindError error);
  void finish(const FindPtr& find, Channel* channel, FindError error);
  std::vector<FindPtr> take_waiting(AddressPair pair);

  Reactor& reactor_;
  Rendezvous& rendezvous_;
  Host& host_;
  // By the pair of names; several searches for one pair are possible.
  std::multimap<std::pair<wire::QpName, wire::QpName>, FindPtr> finds_;
  std::map<AddressPair, Rendezvous::DialId> dials_;  // one at a time over each pair
};

}  // namespace shift::net

// Looks for the processes that own remote QPs. It asks over the channels that exist, dials where
// there is none, and repeats both until a deadline. Many QPs between two processes cost one
// connection.
//
// It dials from the address in the local GID to the address in the remote one. When that does not
// answer at once, it dials from and to all other addresses of the two hosts as well, as far as they
// are known, and takes the first one that leads to the peer.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
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
    // Further addresses of the host that has the GID (HostBook).
    virtual std::vector<uint32_t> others(const wire::Gid& gid) = 0;
    // Whether a host can be reached at the address in its GID, or at the one that the link names.
    virtual bool looks_by_gid() const { return true; }
    // Whether there is a store, and PeerNetwork::look_up().
    virtual bool has_store() const = 0;
    virtual bool look_up(const wire::Gid& gid, StoredCallback then) = 0;
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
    // Where this attempt dials. Those before `spare` are the usual ones; the others come later.
    std::vector<AddressPair> pairs;
    size_t spare = 0;
    size_t dialed = 0;                      // so many of them have been dialed
    std::set<AddressPair> dialing;          // those that have not answered in this attempt
    std::set<AddressPair> waiting;          // of these, those that another search dials
    FindError worst = FindError::kNoShift;  // of those that have answered
    std::set<wire::Instance> asked;         // channels asked in this attempt
    std::set<wire::Instance> open;          // channels that owe an answer, however late
    bool asking = false;                    // the attempt waits for answers before it dials
    int nobody = 0;                         // failures in a row with kNoShift or kNoAnswer
    int attempts = 0;
    FindError last = FindError::kUnreachable;
    // Of the end of the questions, of the dials over spare addresses, or of the next attempt.
    Reactor::TimerId timer = 0;
    Reactor::TimerId deadline = 0;
  };
  using FindPtr = std::shared_ptr<Find>;

  wire::Hello hello_for(const Find& find) const;
  void attempt(const FindPtr& find);
  void ask_address(const FindPtr& find, uint32_t local_ip_be);
  void asking_end(const FindPtr& find);
  void pairs_choose(Find& find, uint32_t local_ip_be, std::optional<uint32_t> remote_ip_be);
  void attempt_dial(const FindPtr& find);
  void dial_up_to(const FindPtr& find, size_t count);
  void on_dialed(AddressPair pair, const std::weak_ptr<Find>& dialer, DialError error,
                 Joining joining);
  void look_further(const FindPtr& find);
  void pair_failed(const FindPtr& find, AddressPair pair, FindError error);
  void attempt_failed(const FindPtr& find, FindError error);
  void finish(const FindPtr& find, Channel* channel, FindError error);
  std::vector<FindPtr> take_waiting(AddressPair pair);
  static constexpr size_t kPairsMax = 16;

  Reactor& reactor_;
  Rendezvous& rendezvous_;
  Host& host_;
  // The key is the remote and the local name; there can be several searches for one pair of names.
  std::multimap<std::pair<wire::QpName, wire::QpName>, FindPtr> finds_;
  std::map<AddressPair, Rendezvous::DialId> dials_;  // at most one over each pair
};

}  // namespace shift::net

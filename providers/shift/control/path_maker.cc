#include "control/path_maker.h"

#include <algorithm>
#include <utility>

#include "control/reporter.h"
#include "control/sessions.h"
#include "control/turns.h"
#include "group/command_threads.h"
#include "util/config.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::milliseconds;

namespace {

// The pauses between attempts on a pair that fails.
constexpr milliseconds kPauseMin{20}, kPauseMax{10'000};
constexpr int kDoublings = 10;
// What a group that seeks grants a pair that has not failed yet, and a peer that has answered so
// far.
constexpr milliseconds kPatienceSeeking{100}, kAnswerSeeking{400};
// How often a group that seeks looks whether a NIC of its own keeps it waiting.
constexpr milliseconds kNicLook{50};

}  // namespace

Ways& PathMaker::ways() const {
  return pairs_.of(session_.group.context, session_.ends.remote.gid);
}

bool PathMaker::seeks() const {
  return session_.control.state == State::kSeeking;
}

void PathMaker::tend() {
  const State state = session_.control.state;
  if (!session_.control.is_leader || session_.over || !session_.search.is_proven() ||
      session_.search.channel() == nullptr || !session_.spread.is_settled()) {
    return;
  }
  if (state != State::kActive && state != State::kSeeking) return;
  WayBack& way_back = session_.way_back;
  if (way_back.wanted() && !session_.book.works(*way_back.wanted())) way_back.end_trade();
  if (state == State::kSeeking && !nic_look_.is_running()) watch_nics();
  if (state == State::kActive) way_back.check();
  if (attempt_ || session_.control.state != state) return;
  if (state == State::kSeeking && !way_back.wanted()) {
    // This path was kept while a better one was tried.
    if (const auto* ready = session_.book.best_ready()) {
      return go_on_with({ready->path, ready->generation});
    }
  }
  Time again = Time::max();
  if (const auto path = choose(&again)) {
    if (turns_.ask(session_.serial, seeks())) start(*path);
  } else if (again != Time::max()) {
    tend_again_.start_at(again, [this] { tend(); });
  }
}

// Returns the path to try now, or sets `again` to the time when to ask again.
std::optional<PathName> PathMaker::choose(Time* again) {
  const Time now = loop_.now();
  auto path = seeks() ? session_.way_back.wanted() : std::nullopt;
  if (!path && seeks()) path = next_but_slow(again);
  if (!path) path = session_.book.next(now, session_.serial, ways(), again);
  if (!path) return path;
  if (const Time earliest = pair_of(*path).earliest(seeks()); earliest > now) {
    *again = earliest;  // the peer was busy with the wanted path
    path.reset();
  }
  return path;
}

bool PathMaker::is_slow(int member) const {
  return seeks() && group::is_slow(*session_.group.context, member) && !SHIFT_PLANT(slow_awaited);
}

// The best path whose NIC at this end is not slow.
std::optional<PathName> PathMaker::next_but_slow(Time* again) const {
  uint8_t slow = 0;
  for (int m = 0; m < session_.group.context->member_count; m++)
    slow |= static_cast<uint8_t>(is_slow(m) << m);
  return session_.book.next(loop_.now(), session_.serial, ways(), again, slow);
}

// The command that a NIC hangs in takes SHIFT_COMMAND_MS until the NIC is late, which is most of
// the time that a group has. So the group does not wait for it if there is another path.
void PathMaker::watch_nics() {
  nic_look_.start(kNicLook, [this] {
    if (!seeks()) return;
    watch_nics();
    if (!attempt_) return tend();
    const int member = attempt_->connection.path.leader;
    if (!session_.qps[member].busy || !is_slow(member)) return;
    Time again = Time::max();
    if (next_but_slow(&again)) end_broken("the NIC is slow to answer commands");
  });
}

void PathMaker::start(PathName path) {
  MemberQp& qp = session_.qps[path.leader];
  // tend() is called again when the command thread is done.
  if (!qp.made) return session_.qps.want(path.leader);
  if (qp.busy) return;
  NicPair& pair = pair_of(path);
  pair.trying = session_.serial;
  pair.seeker_tries = seeks();
  session_.book.ready_drop(path);
  const Connection connection{path, next_generation_++};
  attempt_ = {connection, loop_.now()};
  turns_.begin();
  qp.connected = false;
  qp.busy = true;
  session_.qps.choose_address(path.leader, path,
                              [connection](Session& session, const MemberQps::Address& own) {
                                MemberQp& chosen = session.qps[connection.path.leader];
                                chosen.busy = false;
                                PathMaker& paths = session.paths;
                                if (!paths.attempt_ || paths.attempt_->connection != connection)
                                  return paths.tend();
                                if (own.error == 0) chosen.address = own.address;
                                paths.address_chosen(connection, own.error);
                              });
  SHIFT_DEBUG("qp 0x%x: trying path %u-%u, generation %u", session_.group.qpn(), path.leader,
              path.follower, connection.generation);
}

void PathMaker::address_chosen(const Connection& connection, int error) {
  if (error != 0) return end_broken("this end has no address there");
  session_.qps[connection.path.leader].connection = connection;
  say_again();
}

// How long something may take to pass on the path that is being tried. The traffic of a group that
// seeks stands still, and a NIC repeats what is swallowed for long; what works answers soon, or in
// a further attempt, which has more patience. Where all is slow, as between busy hosts, each pair
// would fail once before one got that: so what was slow so far may go on for twice as long.
milliseconds PathMaker::patience() const {
  if (!seeks() || SHIFT_PLANT(seeks_in_no_hurry)) return PathProbe::kPatience;
  const int failures = std::min(pair_of(attempt_->connection.path).failures, 2);
  milliseconds patience = kPatienceSeeking * (1 << 2 * failures);
  if (!SHIFT_PLANT(pace_ignored))
    patience = std::max(patience, std::chrono::duration_cast<milliseconds>(2 * attempt_->set_up));
  return std::min(PathProbe::kPatience, patience);
}

// The peer has to answer within a bound. How long the command thread of this end takes says nothing
// about the path.
void PathMaker::expect_answer(Outcome if_silent) {
  const PathName path = attempt_->connection.path;
  milliseconds bound = PathProbe::kPatience;
  if (if_silent == Outcome::kBroken)
    bound = patience();
  else if (session_.book.times_unanswered(path) == 0)
    bound = kAnswerSeeking;
  silence_.start(seeks() ? bound : 2 * PathProbe::kPatience, [this, path, if_silent] {
    // Meanwhile another path gets its turn.
    if (if_silent == Outcome::kUndecided) session_.book.unanswered(path);
    pair_of(path).pause(loop_.now(), NicPair::kPauseSeeking);
    pair_of(path).why = "the peer does not answer";
    end(if_silent);
  });
}

void PathMaker::say_again() {
  if (!attempt_) return;
  const Connection& connection = attempt_->connection;
  const MemberQp& own = session_.qps[connection.path.leader];
  if (attempt_->stage == Stage::kOffered && own.connection.generation == connection.generation) {
    // A peer that is only slow must not make the NIC pair count as broken for all groups.
    expect_answer(Outcome::kUndecided);
    session_.search.send(wire::Offer{session_.ends.local, session_.ends.remote, connection.path,
                                     connection.generation, own.address});
  } else if (attempt_->stage == Stage::kAsked) {
    expect_answer(Outcome::kBroken);
    session_.search.send(wire::Ready{session_.ends.local, session_.ends.remote, connection.path,
                                     connection.generation, wire::Ready::Kind::kAsk});
  }
}

void PathMaker::hurry() {
  if (!attempt_ || SHIFT_PLANT(seeks_in_no_hurry)) return;
  pair_of(attempt_->connection.path).seeker_tries = true;
  if (attempt_->stage == Stage::kProbing) session_.probe.hurry(patience());
  say_again();
}

void PathMaker::take(const wire::Accept& message) {
  session_.book.answered(message.path);  // though it may be too late for that attempt
  const Connection accepted{message.path, message.generation};
  if (!attempt_ || attempt_->connection != accepted || attempt_->stage != Stage::kOffered) return;
  // The follower has not left the path yet that its QP carried: nothing is wrong with the NIC pair.
  if (message.status == wire::Accept::kBusy) return end(Outcome::kUndecided);
  if (message.status != wire::Accept::kAccepted) return end_broken("the peer cannot use it");
  if (!session_.search.owns(message.address.gid)) {
    foreign_ = message;
    return session_.search.ask_owner(message.address.gid);
  }
  attempt_->stage = Stage::kConnecting;
  silence_.cancel();
  const int member = message.path.leader;
  MemberQp& qp = session_.qps[member];
  qp.busy = true;
  session_.qps.connect(member, qp.address, message.address,
                       [member, accepted](Session& session, int error) {
                         session.qps[member].busy = false;
                         session.paths.connected(accepted, error);
                         session.paths.tend();
                       });
}

void PathMaker::host_known() {
  if (const auto accept = std::exchange(foreign_, std::nullopt)) take(*accept);
}

void PathMaker::connected(const Connection& connection, int error) {
  if (!attempt_ || attempt_->connection != connection) return;
  const PathName path = connection.path;
  if (error != 0) {
    SHIFT_DEBUG("qp 0x%x: path %u-%u cannot be connected: errno %d", session_.group.qpn(),
                path.leader, path.follower, error);
    return end_broken("it cannot be connected");
  }
  session_.qps[path.leader].connected = true;
  if (!session_.group.life.members[path.leader].can_send)
    return ask_peer();  // this end's application only receives
  attempt_->stage = Stage::kProbing;
  attempt_->set_up = loop_.now() - attempt_->begun;
  session_.probe.start(path.leader, patience(), [this](bool passed) {
    if (passed) return ask_peer();
    end_broken("nothing passes");
  });
}

// The peer tries the path, too, because its application may send data on it.
void PathMaker::ask_peer() {
  // A QP that is connected to itself plays both parts, and it has just tried the path.
  if (session_.is_self) return end(Outcome::kReady);
  attempt_->stage = Stage::kAsked;
  attempt_->set_up = loop_.now() - attempt_->begun;
  if (session_.search.channel() == nullptr) return end_broken("the peer cannot be asked");
  say_again();
}

void PathMaker::take(const wire::Ready& message) {
  const Connection connection{message.path, message.generation};
  if (attempt_ && attempt_->stage == Stage::kAsked &&
      attempt_->connection.generation == message.generation) {
    const bool ready = message.kind == wire::Ready::Kind::kReady;
    return ready ? end(Outcome::kReady) : end_broken("nothing passes from the peer");
  }
  // The follower has lost what a path needs that was ready.
  const bool known =
      std::ranges::any_of(session_.book.all_ready(), [&](const PathBook::Ready& ready) {
        return Connection{ready.path, ready.generation} == connection;
      });
  if (message.kind != wire::Ready::Kind::kBroken || !known) return;
  session_.book.ready_drop(message.path);
  tend();
}

void PathMaker::nic_late(int member) {
  if (!attempt_ || attempt_->connection.path.leader != member) return;
  const bool waits = session_.qps[member].busy;
  if (waits) end_broken("the NIC does not answer commands");
}

void PathMaker::stop() {
  if (attempt_) end(Outcome::kUndecided);
}

void PathMaker::end_broken(const char* why) {
  pair_of(attempt_->connection.path).why = why;
  end(Outcome::kBroken);
}

void PathMaker::end(Outcome outcome) {
  session_.reporter().touch(session_);
  const Connection connection = attempt_->connection;
  const PathName path = connection.path;
  // A NIC of the path went down after the probe had passed.
  if (outcome == Outcome::kReady && !session_.book.works(path)) outcome = Outcome::kBroken;
  if (attempt_->stage == Stage::kProbing) session_.probe.stop();
  attempt_.reset();
  foreign_.reset();
  silence_.cancel();
  turns_.end();
  NicPair& pair = pair_of(path);
  if (pair.trying == session_.serial) pair.trying = 0;
  if (outcome == Outcome::kReady) {
    return end_ready(connection, std::exchange(pair.failures, 0) > 0);
  }
  const Time now = loop_.now();
  const bool was_wanted = path == session_.way_back.wanted();
  if (outcome == Outcome::kUndecided) {
    pair.pause(now, milliseconds(1));
  } else {
    const milliseconds most = seeks() ? NicPair::kPauseSeeking : kPauseMax;
    pair.pause(now, std::min(kPauseMin * (1 << std::min(pair.failures, kDoublings)), most));
    pair.failed(now, session_.book.works(path));
    SHIFT_DEBUG("qp 0x%x: path %u-%u does not work, %d failures", session_.group.qpn(), path.leader,
                path.follower, pair.failures);
  }
  session_.qps[path.leader].connected = false;
  if (was_wanted && outcome == Outcome::kBroken) session_.way_back.end_trade();
  tend();
  tend_others();
}

void PathMaker::end_ready(const Connection& connection, bool was_broken) {
  NicPair& pair = pair_of(connection.path);
  pair.pauses_end();
  pair.trade_not_before = {};
  pair.passed = loop_.now();
  pair.why = nullptr;
  session_.book.ready_add(connection.path, connection.generation,
                          loop_.now() + milliseconds(std::max(config().failback_ms, 0)));
  session_.search.send(wire::Ready{session_.ends.local, session_.ends.remote, connection.path,
                                   connection.generation, wire::Ready::Kind::kReady});
  session_.spare_ready();
  if (session_.control.state == State::kSeeking) {
    session_.way_back.end_trade();
    go_on_with(connection);
  }
  if (was_broken) tend_others();
  tend();
}

void PathMaker::go_on_with(const Connection& connection) {
  machine_.feed(session_, {.event = Event::kPathReady, .target = connection});
}

void PathMaker::tend_others() {
  sessions_.for_each_of(session_.group.context, [this](Session& other) {
    if (&other != &session_) other.paths.tend();
  });
}

}  // namespace shift::control

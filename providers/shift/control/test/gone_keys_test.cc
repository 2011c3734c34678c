// The end whose regions go: what it says to the peer, and until when numbers are withheld.
#include "control/gone_keys.h"

#include <gtest/gtest.h>

#include "control/test/lone_session.h"

namespace shift::control {
namespace {

using group::kBackup;
using group::kRkey;
using group::ToldKeys;
using std::chrono::milliseconds;

class GoneKeysTest : public SessionTest {
 protected:
  // The peer asks for keys, which exist from then on.
  void peer_asks(const std::vector<uint32_t>& rkeys) {
    wire::KeyQuery query;
    query.member = kBackup;
    query.rkeys = rkeys;
    session_.keys.answer(query);
  }
  uint32_t region() {
    const uint32_t rkey = next_key_++;
    world_.make_region(rkey + 0x10000, rkey);
    return rkey;
  }
  bool withdraw(uint32_t rkey) { return told_.withdraw(rkey); }
  std::vector<wire::KeysGone> said() const { return channel_.all<wire::KeysGone>(); }
  void peer_answers(uint32_t number) {
    session_.gone.take({session_.ends.remote, session_.ends.local, number});
  }

  Session& session_ = make();
  GoneKeys& gone_ = session_.gone;
  ToldKeys& told_ = world_.context.told_keys;
  uint32_t next_key_ = 0x500;
};

TEST_F(GoneKeysTest, APeerOfAnOlderBuildIsAskedForNothing) {
  const uint32_t key = region();
  peer_asks({key});
  EXPECT_FALSE(withdraw(key));
  gone_.say();
  EXPECT_TRUE(said().empty());
  EXPECT_EQ(channel_.all<wire::KeyReply>().size(), 1u);
}

TEST_F(GoneKeysTest, APeerThatWasToldAKeyHearsThatItIsGone) {
  gone_.peer_forgets_set(true);
  session_.control.epoch = 4;
  const uint32_t key = region();
  peer_asks({key, 0x666});
  gone_.say();
  EXPECT_TRUE(said().empty()) << "nothing is gone";
  EXPECT_TRUE(withdraw(key));
  EXPECT_FALSE(withdraw(0x666)) << "it was denied";
  gone_.say();
  gone_.say();
  ASSERT_EQ(said().size(), 1u);
  EXPECT_EQ(said()[0].from, session_.ends.local);
  EXPECT_EQ(said()[0].to, session_.ends.remote);
  EXPECT_EQ(said()[0].epoch, 4u);
  EXPECT_FALSE(said()[0].all);
  EXPECT_EQ(said()[0].rkeys, std::vector{key});
  EXPECT_TRUE(told_.withholds(key));
  peer_answers(said()[0].number);
  EXPECT_FALSE(told_.withholds(key));
}

TEST_F(GoneKeysTest, ItIsSaidAgainOnANewConnectionUntilItIsAnswered) {
  gone_.peer_forgets_set(true);
  const uint32_t key = region();
  peer_asks({key});
  EXPECT_TRUE(withdraw(key));
  gone_.say();
  session_.say_again();
  ASSERT_EQ(said().size(), 2u);
  EXPECT_EQ(said()[0], said()[1]);
  peer_answers(said()[0].number);
  session_.say_again();
  EXPECT_EQ(said().size(), 2u);
}

// C11
TEST_F(GoneKeysTest, AnAnswerToNothingChangesNothing) {
  gone_.peer_forgets_set(true);
  const uint32_t first = region(), second = region();
  peer_asks({first, second});
  peer_answers(0);
  EXPECT_TRUE(withdraw(first));
  for (uint32_t number : {0u, 1u, 2u}) peer_answers(number);
  EXPECT_TRUE(told_.withholds(first)) << "it has not been said yet";
  gone_.say();
  ASSERT_EQ(said().size(), 1u);
  const uint32_t number = said()[0].number;
  for (uint32_t other : {0u, number - 1, number + 1}) peer_answers(other);
  EXPECT_TRUE(told_.withholds(first));
  EXPECT_TRUE(withdraw(second));
  peer_answers(number);
  ASSERT_EQ(said().size(), 2u) << "the next keys follow the answer";
  EXPECT_EQ(said()[1].rkeys, std::vector{second});
  EXPECT_NE(said()[1].number, number);
  peer_answers(number);
  EXPECT_TRUE(told_.withholds(second)) << "a copy of the older answer";
  peer_answers(said()[1].number);
  EXPECT_FALSE(told_.withholds_any());
}

TEST_F(GoneKeysTest, SessionsDoNotAnswerForEachOther) {
  Session& other = make();
  gone_.peer_forgets_set(true);
  other.gone.peer_forgets_set(true);
  const uint32_t key = region();
  peer_asks({key});
  wire::KeyQuery query;
  query.member = kBackup;
  query.rkeys = {key};
  other.keys.answer(query);
  EXPECT_TRUE(withdraw(key));
  gone_.say();
  other.gone.say();
  ASSERT_EQ(said().size(), 2u);
  peer_answers(said()[1].number);
  EXPECT_TRUE(told_.withholds(key));
  peer_answers(said()[0].number);
  EXPECT_TRUE(told_.withholds(key)) << "the other session's peer has not answered";
  other.gone.over();
  EXPECT_FALSE(told_.withholds(key));
}

// The peer begins each round with a question, and the fence has shut the path of its old requests.
TEST_F(GoneKeysTest, AFenceEndsAllThatThePeerWasTold) {
  gone_.peer_forgets_set(true);
  const uint32_t first = region(), second = region();
  peer_asks({first, second});
  EXPECT_TRUE(withdraw(first));
  gone_.say();
  session_.control.state = fsm::State::kFencing;
  for (const bool proven : {false, true}) {
    group::Fence::Entry entry{&session_.group, group::kDefault};
    entry.result = proven ? group::Fence::Result::kProven : group::Fence::Result::kNotProven;
    session_.round.fenced(entry);
    EXPECT_EQ(told_.withholds(first), !proven);
  }
  EXPECT_FALSE(withdraw(second));
  session_.say_again();
  EXPECT_EQ(said().size(), 1u);
}

TEST_F(GoneKeysTest, NothingIsWithheldForAPeerThatIsGone) {
  gone_.peer_forgets_set(true);
  const uint32_t key = region();
  peer_asks({key});
  EXPECT_TRUE(withdraw(key));
  session_.search.set_proven();
  session_.search.channel_lost();
  for (const auto error : {net::FindError::kUnreachable, net::FindError::kNoSuchQp}) {
    EXPECT_TRUE(told_.withholds(key)) << "its requests may still arrive";
    session_.search.look_later({});
    run_for(milliseconds(1001));
    network_.answer(nullptr, error);
  }
  EXPECT_FALSE(told_.withholds(key));
}

}  // namespace
}  // namespace shift::control

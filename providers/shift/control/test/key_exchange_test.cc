#include "control/key_exchange.h"

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "control/test/lone_session.h"
#include "group/replay.h"
#include "util/config.h"

namespace shift::control {
namespace {

using fsm::Event;
using fsm::State;
using group::Group;
using group::kBackup;
using group::kRkey;
using std::chrono::milliseconds;
using Twin = group::MemoryRegion::Twin;

constexpr uint32_t kPeerKey = 0x99;  // the peer's key that the requests name

class KeyExchangeTest : public SessionTest {
 protected:
  // A WRITE is left for the replay.
  void begin_round() {
    group::post_send(session_.group, 1, IBV_WR_RDMA_WRITE);
    group::leave_for(session_.group, kBackup, kBackup);
    session_.control.state = State::kResuming;
  }
  // The group goes on over the backup path, and a WRITE waits for its key there.
  void write_off_the_default() {
    group::leave_for(session_.group, kBackup, kBackup);
    EXPECT_EQ(group::replay(session_.group, 0).refusal, nullptr);
    session_.control.state = State::kActive;
    group::path_send(session_.group, 1, IBV_WR_RDMA_WRITE);
    keys_.pump_wanted();
  }
  std::vector<wire::KeyQuery> asked() const { return channel_.all<wire::KeyQuery>(); }
  void peer_answers(bool found, uint32_t query_id) {
    wire::KeyReply reply;
    reply.query_id = query_id;
    reply.member = kBackup;
    reply.keys = {{kRkey, kPeerKey, found}};
    keys_.take(reply);
  }
  size_t writes(uint32_t rkey = kPeerKey) {
    size_t count = 0;
    for (const auto& send : group::World::fake(&session_.group, kBackup).sends) {
      count += send.wr.opcode == IBV_WR_RDMA_WRITE && send.wr.wr.rdma.rkey == rkey;
    }
    return count;
  }
  void keys_are_gone(std::vector<uint32_t> rkeys, uint32_t number = 9, bool all = false) {
    keys_.take({session_.ends.remote, session_.ends.local, 1, number, all, std::move(rkeys)});
  }
  std::vector<uint32_t> forgotten() const {
    std::vector<uint32_t> numbers;
    for (const auto& answer : channel_.all<wire::KeysForgotten>()) numbers.push_back(answer.number);
    return numbers;
  }
  wire::KeyReply answer_of(std::vector<uint32_t> rkeys) {
    wire::KeyQuery query;
    query.query_id = 5;
    query.member = kBackup;
    query.rkeys = std::move(rkeys);
    keys_.answer(query);
    run_for(milliseconds(1));
    const auto replies = channel_.all<wire::KeyReply>();
    EXPECT_EQ(replies.size(), 1u);
    return replies.empty() ? wire::KeyReply{} : replies.front();
  }

  Session& session_ = make();
  KeyExchange& keys_ = session_.keys;
};

TEST_F(KeyExchangeTest, ARoundWaitsForTheKeysOfItsReplay) {
  begin_round();
  EXPECT_TRUE(keys_.ask());
  ASSERT_EQ(asked().size(), 1u);
  EXPECT_EQ(asked()[0].rkeys, std::vector{kRkey});
  EXPECT_EQ(asked()[0].member, kBackup);
  peer_answers(true, asked()[0].query_id);
  EXPECT_EQ(machine_.events(), std::vector{Event::kKeysReady});
}

// C7: a program that registers memory anew all the time leaves the keys of many regions behind that
// are gone, and the peer answers only so many questions for such keys.
TEST_F(KeyExchangeTest, OnlyTheFirstQuestionOfARoundAsksInAdvance) {
  write_off_the_default();
  ASSERT_EQ(asked().size(), 1u);
  peer_answers(true, asked()[0].query_id);
  EXPECT_EQ(writes(), 1u);
  keys_are_gone({kRkey});
  constexpr uint32_t kNewRkey = 0x7777;
  {
    ibv_sge sge{0x5000, 8, group::kLkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.rkey = kNewRkey;
    std::lock_guard lock(session_.group.send.mutex);
    session_.group.send.journal.append(wr);
    ASSERT_EQ(group::pump(session_.group), 0);
  }
  keys_.pump_wanted();
  ASSERT_EQ(asked().size(), 2u);
  EXPECT_EQ(asked()[1].rkeys, std::vector{kNewRkey});
  keys_.forget();
  EXPECT_TRUE(keys_.ask());
  EXPECT_EQ(asked().back().rkeys.size(), 2u) << "a new round asks for what was of use";
}

TEST_F(KeyExchangeTest, NothingIsMissingWhereNothingNeedsAKey) {
  group::post_send(session_.group, 1, IBV_WR_SEND);
  group::leave_for(session_.group, kBackup, kBackup);
  EXPECT_FALSE(keys_.ask());
  EXPECT_TRUE(asked().empty());
}

TEST_F(KeyExchangeTest, AKeyThatThePeerDoesNotKnowIsTheApplicationsError) {
  begin_round();
  EXPECT_TRUE(keys_.ask());
  peer_answers(false, asked()[0].query_id);
  EXPECT_EQ(machine_.events(), std::vector{Event::kReplayRefused});
  EXPECT_EQ(machine_.inputs[0].refusal, wire::RefuseReason::kKeyMissing);
  EXPECT_EQ(session_.group.life.errors.original.status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(KeyExchangeTest, AnOlderQuestionsAnswerIsStale) {
  begin_round();
  EXPECT_TRUE(keys_.ask());
  keys_.say_again();
  ASSERT_EQ(asked().size(), 2u);
  peer_answers(true, asked()[0].query_id);
  EXPECT_TRUE(machine_.inputs.empty());
  peer_answers(true, asked()[1].query_id);
  EXPECT_EQ(machine_.events(), std::vector{Event::kKeysReady});
  keys_.say_again();
  EXPECT_EQ(asked().size(), 2u) << "nothing waits any more";
}

// The peer has deregistered a region, and its NIC gave the same number to another one.
TEST_F(KeyExchangeTest, ARoundForgetsWhatItKnew) {
  begin_round();
  EXPECT_TRUE(keys_.ask());
  peer_answers(true, asked()[0].query_id);
  EXPECT_FALSE(keys_.ask()) << "the key is known";
  keys_.forget();
  peer_answers(true, asked()[0].query_id);
  EXPECT_TRUE(keys_.ask()) << "an old answer is no answer";
  peer_answers(true, asked().back().query_id);
  EXPECT_FALSE(keys_.ask());
}

// C11: a second answer could change what the first one said.
TEST_F(KeyExchangeTest, AnAnswerIsTakenOnce) {
  begin_round();
  EXPECT_TRUE(keys_.ask());
  const uint32_t query_id = asked()[0].query_id;
  peer_answers(true, query_id);
  wire::KeyReply second;
  second.query_id = query_id;
  second.member = kBackup;
  second.keys = {{kRkey, 0x77, true}};
  keys_.take(second);
  EXPECT_EQ(session_.group.life.remote_keys[kBackup].at(kRkey), kPeerKey);
}

// C11: the same number is another key on another NIC.
TEST_F(KeyExchangeTest, AnAnswerForAnotherMemberIsNoAnswer) {
  begin_round();
  EXPECT_TRUE(keys_.ask());
  wire::KeyReply reply;
  reply.query_id = asked()[0].query_id;
  reply.keys = {{kRkey, kPeerKey, true}};
  for (const uint8_t member : {uint8_t{0}, uint8_t{2}, uint8_t{255}}) {
    reply.member = member;
    keys_.take(reply);
  }
  EXPECT_TRUE(machine_.inputs.empty());
  peer_answers(true, reply.query_id);
  EXPECT_EQ(machine_.events(), std::vector{Event::kKeysReady});
}

// C11: a peer that guesses keys learns none when it has guessed too often.
TEST_F(KeyExchangeTest, WhoGuessesKeysGetsNoAnswersForAWhile) {
  std::vector<uint32_t> guesses;
  for (uint32_t i = 0; i < 5000; i++) guesses.push_back(0x40000000 + i);
  guesses.push_back(kRkey);
  EXPECT_FALSE(answer_of(guesses).keys.back().found);
  channel_.sent.clear();
  run_for(std::chrono::seconds(1));
  EXPECT_TRUE(answer_of({kRkey}).keys.back().found) << "an honest question, later";
}

TEST_F(KeyExchangeTest, WhatIsPostedOffTheDefaultWaitsForItsKey) {
  write_off_the_default();
  ASSERT_EQ(asked().size(), 1u);
  EXPECT_EQ(writes(), 0u);
  keys_.pump_wanted();
  EXPECT_EQ(asked().size(), 1u) << "it has been asked for";
  peer_answers(true, asked()[0].query_id);
  EXPECT_EQ(writes(), 1u);
  run_for(milliseconds(2 * config().exchange_ms));
  EXPECT_TRUE(machine_.inputs.empty());
}

// C6
TEST_F(KeyExchangeTest, AKeyIsNotWaitedForForEver) {
  write_off_the_default();
  run_for(milliseconds(config().exchange_ms - 1));
  EXPECT_TRUE(machine_.inputs.empty());
  run_for(milliseconds(2));
  EXPECT_EQ(machine_.events(), std::vector{Event::kReplayRefused});
}

// The peer may be out of reach for as long as the stock library would repeat the request.
TEST_F(KeyExchangeTest, AKeyIsWaitedForAsLongAsTheProgramAsked) {
  // The timeout is 268 ms; the NIC may take four times that, eight times.
  session_.group.life.asked.attr.timeout = 16;
  session_.group.life.asked.attr.retry_cnt = 7;
  session_.group.life.asked.mask |= IBV_QP_TIMEOUT;
  write_off_the_default();
  run_for(milliseconds(8589));
  EXPECT_TRUE(machine_.inputs.empty());
  run_for(milliseconds(2));
  EXPECT_EQ(machine_.events(), std::vector{Event::kReplayRefused});
}

TEST_F(KeyExchangeTest, ARoundForgetsWhatWasAskedForTheOldPath) {
  write_off_the_default();
  keys_.forget();
  keys_.say_again();
  EXPECT_EQ(asked().size(), 1u);
  run_for(milliseconds(2 * config().exchange_ms));
  EXPECT_TRUE(machine_.inputs.empty());
}

TEST_F(KeyExchangeTest, NothingIsAskedForWhileARoundIsUnderWay) {
  session_.control.state = State::kSeeking;
  group::post_send(session_.group, 1, IBV_WR_RDMA_WRITE);
  group::leave_for(session_.group, kBackup, kBackup);
  keys_.pump_wanted();
  EXPECT_TRUE(asked().empty());
}

TEST_F(KeyExchangeTest, AKeyThatIsGoneIsAskedForAnew) {
  write_off_the_default();
  peer_answers(true, asked().back().query_id);
  EXPECT_EQ(writes(), 1u);
  keys_are_gone({kRkey + 1});
  group::path_send(session_.group, 2, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(writes(), 2u) << "the key of another region is gone";
  for (const bool all : {false, true}) {
    SCOPED_TRACE(all);
    const size_t questions = asked().size(), before = writes();
    keys_are_gone(all ? std::vector<uint32_t>{} : std::vector{kRkey}, 10, all);
    group::path_send(session_.group, 3, IBV_WR_RDMA_WRITE);
    EXPECT_EQ(writes(), before);
    keys_.pump_wanted();
    ASSERT_EQ(asked().size(), questions + 1);
    peer_answers(true, asked().back().query_id);
    EXPECT_EQ(writes(), before + 1);
  }
}

TEST_F(KeyExchangeTest, ThatAKeyIsGoneIsAnsweredEachTime) {
  keys_are_gone({1, 2}, 7);
  keys_are_gone({1, 2}, 7);
  keys_are_gone({}, 8, true);
  EXPECT_EQ(forgotten(), (std::vector<uint32_t>{7, 7, 8}));
  EXPECT_TRUE(machine_.inputs.empty());
  EXPECT_TRUE(asked().empty());
}

// The peer answered, and then its application deregistered the region: an answer that comes after
// that news is older than it.
TEST_F(KeyExchangeTest, AnAnswerFromBeforeTheKeyWentIsNotTaken) {
  write_off_the_default();
  for (const bool all : {false, true}) {
    SCOPED_TRACE(all);
    const auto question = asked().back();
    keys_are_gone(all ? std::vector<uint32_t>{} : std::vector{kRkey}, 9, all);
    peer_answers(true, question.query_id);
    EXPECT_EQ(writes(), 0u);
    keys_.pump_wanted();  // as the data path does when it meets the missing key
    ASSERT_EQ(asked().back().query_id, question.query_id + 1) << "the request still needs the key";
    peer_answers(true, question.query_id);
    EXPECT_EQ(writes(), 0u);
  }
  peer_answers(true, asked().back().query_id);
  EXPECT_EQ(writes(), 1u);
}

TEST_F(KeyExchangeTest, NorDoesItLetARoundGoOn) {
  begin_round();
  EXPECT_TRUE(keys_.ask());
  keys_are_gone({kRkey});
  peer_answers(true, asked()[0].query_id);
  EXPECT_TRUE(machine_.inputs.empty());
  ASSERT_EQ(asked().size(), 2u);
  EXPECT_EQ(asked()[1].rkeys, std::vector{kRkey});
  peer_answers(true, asked()[1].query_id);
  EXPECT_EQ(machine_.events(), std::vector{Event::kKeysReady});
}

TEST_F(KeyExchangeTest, AKeyThatIsGoneForGoodIsTheApplicationsError) {
  begin_round();
  EXPECT_TRUE(keys_.ask());
  keys_are_gone({kRkey});
  peer_answers(false, asked()[0].query_id);
  EXPECT_TRUE(machine_.inputs.empty()) << "that may be older, too";
  peer_answers(false, asked()[1].query_id);
  EXPECT_EQ(machine_.events(), std::vector{Event::kReplayRefused});
}

// C11
TEST_F(KeyExchangeTest, KeysThatWereNotAskedForAreNotKept) {
  write_off_the_default();
  wire::KeyReply reply;
  reply.query_id = asked()[0].query_id;
  reply.member = kBackup;
  for (uint32_t key = 0x1000; key < 0x1100; key++) reply.keys.push_back({key, key + 1, true});
  reply.keys.push_back({kRkey, kPeerKey, true});
  keys_.take(reply);
  EXPECT_EQ(writes(), 1u);
  EXPECT_EQ(session_.group.life.remote_keys[kBackup].size(), 1u);
}

// C11: the peer is told only keys of the QP's own protection domain.
TEST_F(KeyExchangeTest, KnownKeysAreToldAndUnknownOnesDenied) {
  const auto reply = answer_of({kRkey, 0x666});
  EXPECT_EQ(reply.query_id, 5u);
  EXPECT_EQ(reply.member, kBackup);
  ASSERT_EQ(reply.keys.size(), 2u);
  EXPECT_EQ(reply.keys[0], (wire::KeyPair{kRkey, group::kBackupRkey, true}));
  EXPECT_EQ(reply.keys[1], (wire::KeyPair{0x666, 0, false}));
}

TEST_F(KeyExchangeTest, ARegionThatIsBeingRegisteredIsToldAfterwards) {
  group::MemoryRegion* region = world_.make_region(0x50, 0x60, Twin::kQueued);
  loop_.call_soon([region] { region->twins_set(Twin::kReady); });  // as the worker does
  const auto reply = answer_of({0x60});
  ASSERT_EQ(reply.keys.size(), 1u);
  EXPECT_EQ(reply.keys[0], (wire::KeyPair{0x60, group::rkey_on(kBackup, 0x60), true}));
}

// C11: a question has up to 256 KiB, and a registration may take seconds.
TEST_F(KeyExchangeTest, OnlyTheNewestQuestionWaitsForARegistration) {
  group::MemoryRegion* region = world_.make_region(0x50, 0x60, Twin::kQueued);
  commands_.late.insert(1);  // the registration takes a while
  commands_.late.insert(0);
  wire::KeyQuery query;
  query.member = kBackup;
  query.rkeys = {0x60};
  for (query.query_id = 1; query.query_id < 1000; query.query_id++) keys_.answer(query);
  EXPECT_EQ(commands_.held.size(), 1u);
  run_for(milliseconds(1));
  EXPECT_TRUE(channel_.all<wire::KeyReply>().empty());
  region->twins_set(Twin::kReady);
  for (const int nic : {0, 1}) commands_.answer(nic);
  run_for(milliseconds(1));
  const auto replies = channel_.all<wire::KeyReply>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].query_id, 999u);
  EXPECT_EQ(replies[0].keys,
            (std::vector<wire::KeyPair>{{0x60, group::rkey_on(kBackup, 0x60), true}}));
  keys_.answer(query);
  EXPECT_EQ(channel_.all<wire::KeyReply>().size(), 2u);
}

// The command thread has other registrations to do when a newer question comes.
TEST_F(KeyExchangeTest, AQuestionWaitsForWhatWasBegunBeforeIt) {
  group::MemoryRegion* first = world_.make_region(0x50, 0x60, Twin::kQueued);
  group::MemoryRegion* second = world_.make_region(0x51, 0x61, Twin::kQueued);
  wire::KeyQuery query;
  query.member = kBackup;
  query.rkeys = {0x60};
  keys_.answer(query);
  loop_.call_soon([first] { first->twins_set(Twin::kReady); });
  // The next registration ends after what the first question waits for.
  loop_.call_soon(
      [this, second] { loop_.call_soon([second] { second->twins_set(Twin::kReady); }); });
  query.query_id = 2;
  query.rkeys = {0x61};
  keys_.answer(query);
  run_for(milliseconds(1));
  const auto replies = channel_.all<wire::KeyReply>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].query_id, 2u);
  EXPECT_TRUE(replies[0].keys[0].found);
}

TEST_F(KeyExchangeTest, ARegionThatCouldNotBeRegisteredIsDenied) {
  world_.make_region(0x50, 0x60, Twin::kFailed);
  const auto reply = answer_of({0x60});
  ASSERT_EQ(reply.keys.size(), 1u);
  EXPECT_FALSE(reply.keys[0].found);
}

}  // namespace
}  // namespace shift::control

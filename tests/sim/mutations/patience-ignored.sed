# bug: a program that bears a long outage is given up after SHIFT_EXCHANGE_MS
# shows: C7
# within: 2000
# file: control/session.cc
s/may_come_back\(\) \? std::max\(least, (.*)\) : least;/least;/

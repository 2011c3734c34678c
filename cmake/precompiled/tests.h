// As standard.h, for tests.
#pragma once

#include <gtest/gtest.h>

#include "standard.h"

// The types that values can have.
#include "collate/dtype.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>

#include "ragged.h"

namespace evenstride {
namespace {

using testing::expect_error;
using testing::kDTypes;

// The least and the most number of an integer type, as floats with a mantissa that holds both.
struct Range {
  long double least;
  long double most;
};

template <class T>
Range range_of() {
  return {static_cast<long double>(std::numeric_limits<T>::min()),
          static_cast<long double>(std::numeric_limits<T>::max())};
}

Range range_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return range_of<std::int8_t>();
    case DType::kUInt8:
      return range_of<std::uint8_t>();
    case DType::kInt16:
      return range_of<std::int16_t>();
    case DType::kUInt16:
      return range_of<std::uint16_t>();
    case DType::kInt32:
      return range_of<std::int32_t>();
    case DType::kUInt32:
      return range_of<std::uint32_t>();
    case DType::kInt64:
      return range_of<std::int64_t>();
    default:
      return range_of<std::uint64_t>();
  }
}

TEST(ParseDType, AcceptsEveryNameAndNamesTheTypeAlike) {
  const std::map<std::string, std::size_t> sizes = {
      {"bool", 1},    {"int8", 1},     {"uint8", 1},   {"int16", 2},  {"uint16", 2},
      {"int32", 4},   {"uint32", 4},   {"int64", 8},   {"uint64", 8}, {"float16", 2},
      {"float32", 4}, {"bfloat16", 2}, {"float64", 8},
  };
  EXPECT_EQ(sizes.size(), std::size(kDTypes));
  for (const auto& [name, size] : sizes) {
    const DType dtype = parse_dtype("dtype", name);
    EXPECT_EQ(name_of(dtype), name);
    EXPECT_EQ(size_of(dtype), size) << name;
    EXPECT_EQ(is_float(dtype), name.find("float") != std::string::npos) << name;
    EXPECT_EQ(is_signed(dtype), name.starts_with("int")) << name;
  }
}

TEST(ParseDType, ListsTheNamesWhereItKnowsNoSuchType) {
  for (const std::string name : {"int", "", "Int64", "float"}) {
    expect_error<std::invalid_argument>(
        [&] { (void)parse_dtype("mask_dtype", name); },
        "`mask_dtype` must be one of 'bool', 'int8', 'uint8', 'int16', 'uint16', 'int32', "
        "'uint32', 'int64', 'uint64', 'float16', 'bfloat16', 'float32', 'float64', but is '" +
            name + "'.");
  }
}

TEST(IsConvertible, IntegersAndBoolsBecomeOneAnotherAndFloatsStayWhatTheyAre) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      const bool expected = from == to || (!is_float(from) && !is_float(to));
      EXPECT_EQ(is_convertible(from, to), expected) << name_of(from) << " " << name_of(to);
    }
  }
}

TEST(AlwaysFits, JustWhereTheRangeOfOneTypeIsInThatOfTheOther) {
  static_assert(std::numeric_limits<long double>::digits >= 64);
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      if (is_float(from) || is_float(to)) {
        continue;
      }
      const bool has_bool = from == DType::kBool || to == DType::kBool;
      const bool expected = !has_bool && range_of(to).least <= range_of(from).least &&
                            range_of(from).most <= range_of(to).most;
      EXPECT_EQ(always_fits(from, to), expected) << name_of(from) << " " << name_of(to);
    }
  }
  EXPECT_TRUE(always_fits(DType::kBFloat16, DType::kBFloat16));
}

}  // namespace
}  // namespace evenstride

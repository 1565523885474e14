#include "collate/dtype.h"

#include "core/names.h"

namespace evenstride {
namespace {

constexpr Named<DType> kNames[] = {
    {"bool", DType::kBool},       {"int8", DType::kInt8},         {"uint8", DType::kUInt8},
    {"int16", DType::kInt16},     {"uint16", DType::kUInt16},     {"int32", DType::kInt32},
    {"uint32", DType::kUInt32},   {"int64", DType::kInt64},       {"uint64", DType::kUInt64},
    {"float16", DType::kFloat16}, {"bfloat16", DType::kBFloat16}, {"float32", DType::kFloat32},
    {"float64", DType::kFloat64}};

}  // namespace

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kUInt8:
      return 1;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kFloat32:
      return 4;
    default:
      return 8;
  }
}

std::string_view name_of(DType dtype) {
  return kNames[static_cast<std::size_t>(dtype)].name;
}

DType parse_dtype(std::string_view option, std::string_view name) {
  return parse_name(option, kNames, name);
}

bool is_signed(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 ||
         dtype == DType::kInt64;
}

bool is_convertible(DType from, DType to) {
  return from == to || (!is_float(from) && !is_float(to));
}

bool always_fits(DType from, DType to) {
  // A bool in memory may be any byte, of which only 0 and 1 are bools.
  if (from == DType::kBool || to == DType::kBool) {
    return false;
  }
  if (from == to) {
    return true;
  }
  if (is_signed(from) && !is_signed(to)) {
    return false;
  }
  return size_of(from) < size_of(to) ||
         (size_of(from) == size_of(to) && is_signed(from) == is_signed(to));
}

}  // namespace evenstride

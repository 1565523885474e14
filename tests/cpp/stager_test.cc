// Workers that stage batches: what is allocated before a pass, and nothing amid it.
#include "cuda/stager.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fake_driver.h"
#include "lane_setting.h"
#include "staged.h"

namespace evenstride {
namespace {

using testing::Setting;
using Calls = std::vector<std::string>;

TEST(Stager, NothingIsAllocatedAmidAPassOnAnyDevice) {
  Setting setting;
  Lane second(setting.fake.table(), 1, testing::kImage);
  const std::vector<std::shared_ptr<Destination>> destinations = {
      std::make_shared<Destination>(setting.lane, 4, 1 << 20),
      std::make_shared<Destination>(second, 4, 1 << 20)};
  const auto stager =
      std::make_shared<Stager>(setting.corpus.collator(), setting.lane, 8, 8, 8 * 700);
  const auto delivery =
      std::make_shared<const Delivery>(DeliveryOptions{.num_batches = 8, .num_targets = 2});
  const MakeBatch make = stage_for(stager, destinations, delivery);
  setting.fake.forget_calls();
  const std::vector<std::int64_t> samples = {0, 1, 2, 3, 4, 5, 6, 7};
  BatchRows rows;
  std::vector<std::shared_ptr<void>> parcels;
  for (std::uint64_t number = 0; number < 8; ++number) {
    parcels.push_back(make(number, samples, rows));
    const auto& batch = *static_cast<const DeviceBatch*>(parcels.back().get());
    EXPECT_EQ(batch.destination, destinations[number % 2].get());
    EXPECT_TRUE(batch.is_given);
  }
  EXPECT_EQ(setting.fake.count("cuMemAlloc"), 0U);
  EXPECT_EQ(setting.fake.count("cuMemHostRegister"), 0U);
  EXPECT_EQ(setting.fake.faults(), Calls{});
}

}  // namespace
}  // namespace evenstride

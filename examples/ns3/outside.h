// Common parts of the programs here: real interfaces joined to simulated devices, and the lateness of events.

#ifndef OUTSIDE_H
#define OUTSIDE_H

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/fd-net-device-module.h"
#include "ns3/network-module.h"
#include "ns3/realtime-simulator-impl.h"

/// Opens a packet socket for the frames received by an interface of this network namespace.
int OpenInterface(const std::string& name);

/// Joins the interface `name` to the device `inside`. The device represents the machine behind that interface
/// and so has its hardware address, `mac`. A station of a wireless network cannot be bridged.
inline void Join(const std::string& name, const std::string& mac,
                 ns3::Ptr<ns3::NetDevice> inside) {
  using namespace ns3;
  inside->SetAddress(Mac48Address(mac.c_str()));
  auto outside = CreateObject<FdNetDevice>();
  outside->SetAddress(Mac48Address::Allocate());
  outside->SetFileDescriptor(OpenInterface(name));
  inside->GetNode()->AddDevice(outside);
  using Device = Ptr<NetDevice>;
  using Content = Ptr<const Packet>;
  using Type = NetDevice::PacketType;
  outside->SetPromiscReceiveCallback(NetDevice::PromiscReceiveCallback(
      [inside](Device, Content packet, uint16_t protocol, const Address&, const Address& to, Type) {
        return inside->Send(packet->Copy(), to, protocol);
      }));
  inside->SetPromiscReceiveCallback(NetDevice::PromiscReceiveCallback(
      [outside](Device, Content packet, uint16_t protocol, const Address& from, const Address& to,
                Type type) {
        if (type == NetDevice::PACKET_OTHERHOST) return false;
        return outside->SendFrom(packet->Copy(), from, to, protocol);
      }));
}

/// Starts broadcasts of `bytes` bytes, on average `rate` per second.
inline void Chatter(ns3::Ptr<ns3::NetDevice> device, uint32_t bytes, double rate,
                    ns3::Ptr<ns3::ExponentialRandomVariable> gap) {
  using namespace ns3;
  Simulator::Schedule(Seconds(gap->GetValue(1 / rate, 0)), [=] {
    const uint16_t experimental = 0x88b5;
    device->Send(Create<Packet>(bytes), device->GetBroadcast(), experimental);
    Chatter(device, bytes, rate, gap);
  });
}

/// Measures the lateness of events: once a millisecond, the time from the scheduled instant to the event.
class Lateness {
 public:
  void Watch() {
    using namespace ns3;
    Simulator::Schedule(MilliSeconds(1), [this] {
      auto simulator = DynamicCast<RealtimeSimulatorImpl>(Simulator::GetImplementation());
      late_.push_back((simulator->RealtimeNow() - Simulator::Now()).GetNanoSeconds() / 1e3);
      Watch();
    });
  }

  /// Prints the result as a line of JSON; microseconds.
  void Print() {
    std::sort(late_.begin(), late_.end());
    auto quantile = [this](double part) {
      return late_.empty() ? 0 : late_[static_cast<size_t>(part * (late_.size() - 1))];
    };
    double sum = std::accumulate(late_.begin(), late_.end(), 0.0);
    double mean = late_.empty() ? 0 : sum / late_.size();
    std::printf("{\"events\": %zu, \"mean_us\": %.3f, ", late_.size(), mean);
    std::printf("\"median_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f}\n", quantile(0.5),
                quantile(0.99), quantile(1));
  }

 private:
  std::vector<double> late_;
};

/// Command line options of both programs.
struct Options {
  std::string left, right;
  std::string leftMac = "02:00:00:00:00:0a", rightMac = "02:00:00:00:00:0b";
  uint32_t machines = 0, stations = 0, bytes = 200;
  double rate = 10, seconds = 10, hardLimit = 0;

  void AddTo(ns3::CommandLine& line) {
    line.AddValue("left", "interface whose frames enter at the first station", left);
    line.AddValue("right", "interface whose frames enter at the second station", right);
    line.AddValue("leftMac", "hardware address of the machine behind 'left'", leftMac);
    line.AddValue("rightMac", "hardware address of the machine behind 'right'", rightMac);
    line.AddValue("machines",
                  "machines outside, in place of 'left' and 'right': that of station K, from 0, is "
                  "behind the interface ethK and has the hardware address 02:00:00:00:01:KK",
                  machines);
    line.AddValue("stations", "further stations, which broadcast", stations);
    line.AddValue("rate", "broadcasts of each of them in a second", rate);
    line.AddValue("bytes", "in each broadcast", bytes);
    line.AddValue("seconds", "how long to run, by the program's clock", seconds);
    line.AddValue("hardLimit", "end with an error once an event is later, ms; 0: never", hardLimit);
  }

  /// Number of stations that stand for machines outside.
  uint32_t Outside() const { return machines ? machines : 2; }
};

/// Makes the stations, the first of them for machines outside, in a simulator on the clock that the program sees.
inline ns3::NodeContainer StationsInRealTime(const Options& options) {
  using namespace ns3;
  GlobalValue::Bind("SimulatorImplementationType", StringValue("ns3::RealtimeSimulatorImpl"));
  if (options.hardLimit > 0) {
    const std::string simulator = "ns3::RealtimeSimulatorImpl::";
    Config::SetDefault(simulator + "SynchronizationMode", StringValue("HardLimit"));
    Config::SetDefault(simulator + "HardLimit", TimeValue(Seconds(options.hardLimit / 1000)));
  }
  NodeContainer nodes;
  nodes.Create(options.Outside() + options.stations);
  return nodes;
}

/// Runs on the clock that the program sees. `join` joins the first devices to machines outside; the others
/// broadcast.
inline void RunInRealTime(const ns3::NetDeviceContainer& devices, const Options& options,
                          decltype(Join)* join = Join) {
  using namespace ns3;
  for (uint32_t at = 0; at < options.machines; ++at) {
    char mac[18];
    std::snprintf(mac, sizeof mac, "02:00:00:00:01:%02x", at & 0xff);
    join("eth" + std::to_string(at), mac, devices.Get(at));
  }
  if (!options.left.empty()) join(options.left, options.leftMac, devices.Get(0));
  if (!options.right.empty()) join(options.right, options.rightMac, devices.Get(1));
  auto gap = CreateObject<ExponentialRandomVariable>();
  for (uint32_t at = options.Outside(); at < devices.GetN(); ++at) {
    Chatter(devices.Get(at), options.bytes, options.rate, gap);
  }
  Lateness lateness;
  lateness.Watch();
  Simulator::Stop(Seconds(options.seconds));
  Simulator::Run();
  lateness.Print();
  Simulator::Destroy();
}

#endif

// A bus of ns-3's (CSMA), in real time: some stations stand for machines outside, others chatter.
// With --bridge they are joined by ns-3's TapBridge, to tap devices that the namespace's bridges hold.

#include "ns3/csma-module.h"
#include "ns3/tap-bridge-module.h"
#include "outside.h"

using namespace ns3;

/// Joins the tap device `name` to the device `inside`, which passes on frames of others as its own.
static void JoinByTapBridge(const std::string& name, const std::string&, Ptr<NetDevice> inside) {
  TapBridgeHelper bridge;
  bridge.SetAttribute("Mode", StringValue("UseBridge"));
  bridge.SetAttribute("DeviceName", StringValue(name));
  bridge.Install(inside->GetNode(), inside);
}

int main(int count, char* words[]) {
  Options options;
  std::string delay = "1ms", speed = "10Mbps";
  CommandLine line(__FILE__);
  options.AddTo(line);
  line.AddValue("delay", "from one end of the bus to the other", delay);
  line.AddValue("speed", "of the bus", speed);
  bool bridge = false;
  line.AddValue("bridge", "whether left and right are tap devices, joined by TapBridge", bridge);
  line.Parse(count, words);

  NodeContainer nodes = StationsInRealTime(options);
  CsmaHelper bus;
  bus.SetChannelAttribute("DataRate", StringValue(speed));
  bus.SetChannelAttribute("Delay", StringValue(delay));
  RunInRealTime(bus.Install(nodes), options, bridge ? JoinByTapBridge : Join);
}

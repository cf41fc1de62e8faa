// An ad hoc wireless network of ns-3's (802.11a), in real time: some stations stand for machines
// outside, others chatter.

#include "ns3/mobility-module.h"
#include "ns3/wifi-module.h"
#include "outside.h"

using namespace ns3;

int main(int count, char* words[]) {
  Options options;
  double metres = 10;
  CommandLine line(__FILE__);
  options.AddTo(line);
  line.AddValue("metres", "from one station to the next, in rows of ten", metres);
  line.Parse(count, words);

  NodeContainer nodes = StationsInRealTime(options);
  MobilityHelper places;
  places.SetPositionAllocator("ns3::GridPositionAllocator", "DeltaX", DoubleValue(metres),
                              "DeltaY", DoubleValue(metres), "GridWidth", UintegerValue(10));
  places.SetMobilityModel("ns3::ConstantPositionMobilityModel");
  places.Install(nodes);

  YansWifiPhyHelper radio;
  radio.SetChannel(YansWifiChannelHelper::Default().Create());
  WifiMacHelper access;
  access.SetType("ns3::AdhocWifiMac");
  WifiHelper wifi;
  wifi.SetStandard(WIFI_STANDARD_80211a);
  wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager", "DataMode",
                               StringValue("OfdmRate6Mbps"));
  RunInRealTime(wifi.Install(radio, access, nodes), options);
}

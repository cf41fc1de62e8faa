// A bus of ns-3's (CSMA), in real time: two stations stand for machines outside, others chatter.

#include "ns3/csma-module.h"
#include "outside.h"

using namespace ns3;

int main(int count, char* words[]) {
  Options options;
  std::string delay = "1ms", speed = "10Mbps";
  CommandLine line(__FILE__);
  options.AddTo(line);
  line.AddValue("delay", "from one end of the bus to the other", delay);
  line.AddValue("speed", "of the bus", speed);
  line.Parse(count, words);

  NodeContainer nodes = StationsInRealTime(options);
  CsmaHelper bus;
  bus.SetChannelAttribute("DataRate", StringValue(speed));
  bus.SetChannelAttribute("Delay", StringValue(delay));
  RunInRealTime(bus.Install(nodes), options);
}

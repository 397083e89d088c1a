package lifecycle

import "github.com/prism-gpu/prism/pkg/gpu"

// turning asks for an interval on the claim's GPUs.
func (a Act) turning(interval gpu.Interval) Act {
	a.Interval = interval
	return a
}

// keeps has the node's configuration want an interval on these GPUs, and nothing on the others.
func keeps(interval gpu.Interval, gpus ...int) Act {
	return Act{Call: "keep", Interval: interval, GPUs: gpus}
}

// intervalScenarios are the lives of claims that set the interval of their GPUs, and of a node whose configuration does.
var intervalScenarios = []scenario{
	{name: "an interval", acts: []Act{
		prepares("a", 0).turning("Short"), prepares("a", 0).turning("Short"), unprepares("a"),
	}},
	{name: "intervals on two GPUs, with other effects", long: true, acts: []Act{prepares("a", 0, 1).turning("Long").with(), unprepares("a")}},
	{
		name: "an interval is refused", long: true, refuse: map[string]int{"tool.SetTimeslice": 1},
		acts: []Act{prepares("a", 0).turning("Long").failing(), prepares("a", 0).turning("Long"), unprepares("a")},
	},
	{
		name: "an interval cannot be put back at first", long: true, refuse: map[string]int{"tool.SetTimeslice": 2},
		acts: []Act{prepares("a", 0).turning("Long"), unprepares("a").failing(), unprepares("a")},
	},
	{
		name: "an interval after a reboot", long: true, before: []Act{prepares("a", 0).turning("Long")}, then: reboots,
		acts: []Act{settles, prepares("a", 0).turning("Long"), unprepares("a")},
	},
	{
		name: "a record with an interval is damaged", before: []Act{prepares("a", 0).turning("Long")}, then: damages("a"),
		acts: []Act{settles, sweepsUp, prepares("a", 0).turning("Short"), unprepares("a")},
	},
	{name: "the node's interval", long: true, acts: []Act{keeps("Long", 0, 1), keeps("Short", 1), keeps("Default")}},
	{name: "the node's interval changes while a claim has another", acts: []Act{
		keeps("Long", 0), prepares("a", 0).turning("Short"), keeps("Medium", 0), unprepares("a"), keeps("Default"),
	}},
	{
		name: "an earlier process died while it set the node's interval", then: diesIn("tool.SetTimeslice", keeps("Long", 0)),
		acts: []Act{keeps("Long", 0), keeps("Default")},
	},
}

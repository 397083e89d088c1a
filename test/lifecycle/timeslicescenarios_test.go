package lifecycle

import (
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// withInterval sets the interval in the claim's configuration.
func (a Act) withInterval(interval gpu.Interval) Act {
	a.Interval = interval
	return a
}

// configuresInterval sets the interval of these GPUs in the node's configuration, and the default for the others.
func configuresInterval(interval gpu.Interval, gpus ...int) Act {
	return Act{Call: "reconcileIntervals", Interval: interval, GPUs: gpus}
}

// configuresIntervals reports whether the scenario sets intervals in the node's configuration.
func (s *scenario) configuresIntervals() bool {
	return slices.ContainsFunc(s.acts, func(a Act) bool { return a.Call == "reconcileIntervals" })
}

// intervalScenarios are the scenarios of intervals in claims and in the node's configuration.
var intervalScenarios = []scenario{
	{name: "an interval", acts: []Act{
		prepares("a", 0).withInterval("Short"), prepares("a", 0).withInterval("Short"), unprepares("a"),
	}},
	{name: "intervals on two GPUs, with other effects", long: true, acts: []Act{prepares("a", 0, 1).withInterval("Long").with(), unprepares("a")}},
	{
		name: "an interval is refused", long: true, refuse: map[string]int{"tool.SetTimeslice": 1},
		acts: []Act{prepares("a", 0).withInterval("Long").failing(), prepares("a", 0).withInterval("Long"), unprepares("a")},
	},
	{
		name: "an interval cannot be reset at first", long: true, refuse: map[string]int{"tool.SetTimeslice": 2},
		acts: []Act{prepares("a", 0).withInterval("Long"), unprepares("a").failing(), unprepares("a")},
	},
	{
		name: "an interval after a reboot", long: true, before: []Act{prepares("a", 0).withInterval("Long")}, then: reboots,
		acts: []Act{recovers, prepares("a", 0).withInterval("Long"), unprepares("a")},
	},
	{
		name: "a record with an interval is damaged", before: []Act{prepares("a", 0).withInterval("Long")}, then: damages("a"),
		acts: []Act{recovers, collectsGarbage, prepares("a", 0).withInterval("Short"), unprepares("a")},
	},
	{name: "the node's interval", long: true, acts: []Act{configuresInterval("Long", 0, 1), configuresInterval("Short", 1), configuresInterval("Default")}},
	{name: "the node's interval changes while a claim has another", acts: []Act{
		configuresInterval("Long", 0), prepares("a", 0).withInterval("Short"), configuresInterval("Medium", 0), unprepares("a"), configuresInterval("Default"),
	}},
	{
		name: "an earlier process was killed while it set the node's interval", then: killedIn("tool.SetTimeslice", configuresInterval("Long", 0)),
		acts: []Act{configuresInterval("Long", 0), configuresInterval("Default")},
	},
}

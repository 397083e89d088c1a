package abi

import "github.com/prism-gpu/prism/test/simgpu/model"

// Sizes of the versions of NVML's struct.
const (
	fabricInfoSize   = 28
	fabricInfoV2Size = 36
	fabricInfoV3Size = 40
)

// Driver branches that know more of the fabric: the third version of the struct, and more parts of its health.
const (
	fabricV3Branch     = 580
	fabricRoutesBranch = 570
)

// The parts of the health of a fabric without problems.
const (
	fullBandwidth   = 2
	healthyRoutes   = 2<<2 | 2<<4 | 2<<6
	correctlySet    = 1 << 8
	fabricIsHealthy = 1
)

// fabricRecord adds the fields that all versions have: the GPUs of a node without a multi-node fabric have the empty cluster, and clique 0.
func fabricRecord(r record, state model.FabricState) record {
	return append(r, make(record, 16)...).u32(uint32(model.Success), 0, uint32(state))
}

func fabricInfo(c *call) error {
	state, err := c.session.Fabric(c.device())
	if err != nil {
		return err
	}
	return c.put(1, fabricRecord(record{}, state))
}

func fabricInfoV(c *call) error {
	version, _ := c.server.Node.Driver()
	v2, v3 := structVersion(fabricInfoV2Size, 2), structVersion(fabricInfoV3Size, 3)
	known := []uint32{v2}
	if version.Branch() >= fabricV3Branch {
		known = append(known, v3)
	}
	wanted, err := c.checkVersion(1, known...)
	if err != nil {
		return err
	}
	state, err := c.session.Fabric(c.device())
	if err != nil {
		return err
	}
	mask, summary := fabricHealth(state, version.Branch())
	info := fabricRecord(record{}.u32(wanted), state).u32(mask)
	if wanted == v3 {
		info = info.u32(summary)
	}
	return c.put(1, info)
}

// fabricHealth is unknown until the registration is completed.
func fabricHealth(state model.FabricState, branch int) (mask, summary uint32) {
	if state != model.FabricCompleted {
		return 0, 0
	}
	mask = fullBandwidth
	if branch >= fabricRoutesBranch {
		mask |= healthyRoutes
	}
	if branch >= fabricV3Branch {
		mask |= correctlySet
	}
	return mask, fabricIsHealthy
}

package model

import "maps"

// fields are NVML's fields by id.
var fields = joinFields(eccFields, linkErrorFields(), linkFields, policyFields, powerFields, pcieFields, rowFields, unsupportedFields())

func joinFields(parts ...map[uint32]field) map[uint32]field {
	all := map[uint32]field{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

var eccFields = map[uint32]field{
	1:  {firstBranch, everyGPU, TypeU32, constant(1)},
	2:  {firstBranch, everyGPU, TypeU32, constant(1)},
	3:  {firstBranch, everyGPU, TypeU64, events(QuantityECCCorrected)},
	4:  {firstBranch, everyGPU, TypeU64, events(QuantityECCUncorrected)},
	5:  {firstBranch, everyGPU, TypeU64, lifetime(QuantityECCCorrected)},
	6:  {firstBranch, everyGPU, TypeU64, lifetime(QuantityECCUncorrected)},
	11: {firstBranch, everyGPU, TypeU64, events(QuantityECCCorrected)},
	12: {firstBranch, everyGPU, TypeU64, events(QuantityECCUncorrected)},
	22: {firstBranch, everyGPU, TypeU64, lifetime(QuantityECCCorrected)},
	23: {firstBranch, everyGPU, TypeU64, lifetime(QuantityECCUncorrected)},
	29: {firstBranch, retires, TypeU64, lifetime(QuantityRetiredCorrected)},
	30: {firstBranch, retires, TypeU64, lifetime(QuantityRetiredUncorrected)},
	31: {firstBranch, retires, TypeU64, retirementPending},
	92: {firstBranch, retires, TypeU64, constant(0)},
	93: {firstBranch, retires, TypeU64, retirementPending},
}

// linkErrorFields returns a field for each of the first twelve links, and one for the sum, until Ampere.
func linkErrorFields() map[uint32]field {
	until := links(Turing, Ampere)
	list := map[uint32]field{}
	for q, first := range map[Quantity][2]uint32{
		QuantityNVLinkFlitErrors: {32, 96}, QuantityNVLinkDataErrors: {39, 102}, QuantityNVLinkReplays: {46, 108}, QuantityNVLinkRecoveries: {53, 114},
	} {
		for i := range 6 {
			list[first[0]+uint32(i)] = field{firstBranch, until, TypeU64, lane(q, i)}
			list[first[1]+uint32(i)] = field{firstBranch, until, TypeU64, lane(q, 6+i)}
		}
		list[first[0]+6] = field{firstBranch, until, TypeU64, events(q)}
	}
	return list
}

var linkFields = map[uint32]field{
	90:  {firstBranch, links(Turing, Blackwell), TypeU32, plain(func(r Reading) uint64 { return uint64(r.Board.Sensors().LinkMBps) })},
	91:  {firstBranch, everyGPU, TypeU32, plain(func(r Reading) uint64 { return uint64(r.Board.Sensors().Links) })},
	138: {firstBranch, links(Turing, Hopper), TypeU64, kibibytes(QuantityNVLinkTx)},
	139: {firstBranch, links(Turing, Hopper), TypeU64, kibibytes(QuantityNVLinkRx)},
	140: {firstBranch, links(Turing, Hopper), TypeU64, kibibytes(QuantityNVLinkTx)},
	141: {firstBranch, links(Turing, Hopper), TypeU64, kibibytes(QuantityNVLinkRx)},
	161: {hopperBranch, links(Hopper, Hopper), TypeU64, linkEvents(QuantityNVLinkReplays)},
	162: {hopperBranch, links(Hopper, Hopper), TypeU64, linkEvents(QuantityNVLinkRecoveries)},
	163: {hopperBranch, links(Hopper, Hopper), TypeU64, linkEvents(QuantityNVLinkFlitErrors)},
	164: {hopperBranch, links(Turing, Blackwell), TypeU32, scopedValue(func(s Sensors) uint32 { return s.LinkMBps })},
	165: {hopperBranch, links(Turing, Blackwell), TypeU32, scopedValue(func(Sensors) uint32 { return 1 })},
	166: {hopperBranch, links(Turing, Blackwell), TypeU32, scopedValue(func(s Sensors) uint32 { return s.LinkVersion })},
	202: {link5Branch, links(Blackwell, Blackwell), TypeU64, scoped(func(r Reading) uint64 { return r.Bytes(QuantityNVLinkTx) })},
	204: {link5Branch, links(Blackwell, Blackwell), TypeU64, scoped(func(r Reading) uint64 { return r.Bytes(QuantityNVLinkRx) })},
	208: {link5Branch, links(Blackwell, Blackwell), TypeU64, linkEvents(QuantityNVLinkDataErrors)},
	213: {link5Branch, links(Blackwell, Blackwell), TypeU64, linkEvents(QuantityNVLinkRecoveries)},
	214: {link5Branch, links(Blackwell, Blackwell), TypeU64, scoped(func(Reading) uint64 { return 0 })},
	215: {link5Branch, links(Blackwell, Blackwell), TypeU64, linkEvents(QuantityNVLinkRecoveries)},
}

// scopedValue is a property of one link.
func scopedValue(f func(Sensors) uint32) func(Reading, uint32) (uint64, error) {
	return func(r Reading, scope uint32) (uint64, error) {
		if int64(scope) >= int64(r.Board.Sensors().Links) {
			return 0, InvalidArgument
		}
		return uint64(f(r.Board.Sensors())), nil
	}
}

var policyFields = map[uint32]field{
	74:  {firstBranch, everyGPU, TypeU64, limited(QuantityThrottlePower)},
	75:  {firstBranch, everyGPU, TypeU64, limited(QuantityThrottleThermal)},
	76:  {firstBranch, everyGPU, TypeU64, limited(QuantityThrottleSyncBoost)},
	77:  {firstBranch, everyGPU, TypeU64, limited(QuantityThrottleBoard)},
	78:  {firstBranch, everyGPU, TypeU64, limited(QuantityThrottleLowUtilization)},
	79:  {firstBranch, everyGPU, TypeU64, limited(QuantityThrottleReliability)},
	80:  {firstBranch, everyGPU, TypeU64, constant(0)},
	81:  {firstBranch, everyGPU, TypeU64, constant(0)},
	269: {reasonBranch, everyGPU, TypeU64, limited(QuantityThrottleThermal)},
	270: {reasonBranch, everyGPU, TypeU64, limited(QuantityThrottleHWThermal)},
	271: {reasonBranch, everyGPU, TypeU64, limited(QuantityThrottlePowerBrake)},
}

func milliwatts(r Reading) uint64 { return uint64(r.Milliwatts()) }

func powerLimit(r Reading) uint64 { return uint64(r.Board.Power.Limit) }

func energy(r Reading) uint64 { return r.Millijoules() }

func hasMemorySensor(r Reading) bool { return r.Board.Sensors().MemorySensor }

var powerFields = map[uint32]field{
	82:  {firstBranch, hasMemorySensor, TypeU32, plain(func(r Reading) uint64 { return uint64(r.Whole(QuantityMemoryTemperature)) })},
	83:  {firstBranch, everyGPU, TypeU64, plain(energy)},
	184: {powerBranch, from(Ampere), TypeU32, plain(func(r Reading) uint64 { return flag(r.Board.MIG.Capable() && !r.Board.MIG.NeedsReset) })},
	185: {powerBranch, averagesPower, TypeU32, plain(milliwatts)},
	186: {powerBranch, everyGPU, TypeU32, plain(milliwatts)},
	187: {powerBranch, everyGPU, TypeU32, plain(func(r Reading) uint64 { return powerLimit(r) / 2 })},
	188: {powerBranch, everyGPU, TypeU32, plain(powerLimit)},
	189: {powerBranch, everyGPU, TypeU32, plain(powerLimit)},
	190: {powerBranch, everyGPU, TypeU32, plain(powerLimit)},
	191: {powerBranch, everyGPU, TypeU64, plain(energy)},
	192: {powerBranch, everyGPU, TypeU32, plain(powerLimit)},
	193: {powerBranch, from(Ada), TypeI32, constant(1<<64 - 8)},
	194: {powerBranch, from(Ada), TypeI32, constant(1<<64 - 2)},
	195: {powerBranch, from(Ada), TypeI32, constant(0)},
	196: {powerBranch, from(Ada), TypeI32, constant(0)},
	199: {pcieBytes, everyGPU, TypeU32, plain(func(r Reading) uint64 { return flag(r.Board.MIG.Capable()) })},
	230: {recoveryBranch, everyGPU, TypeU32, plain(func(r Reading) uint64 { return uint64(r.Health.Action) })},
}

var retirementPending = plain(func(r Reading) uint64 { return flag(r.Health.RetirementPending) })

func flag(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}

var pcieFields = map[uint32]field{
	94:  {firstBranch, everyGPU, TypeU32, events(QuantityPCIeReplays)},
	95:  {firstBranch, everyGPU, TypeU32, constant(0)},
	169: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	173: {hopperBranch, from(Ampere), TypeU32, events(QuantityPCIeReplays)},
	174: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	175: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	176: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	177: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	178: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	179: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	180: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	181: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	182: {hopperBranch, from(Ampere), TypeU32, constant(0)},
	197: {pcieBytes, from(Hopper), TypeU64, plain(func(r Reading) uint64 { return r.Bytes(QuantityPCIeTx) })},
	198: {pcieBytes, from(Hopper), TypeU64, plain(func(r Reading) uint64 { return r.Bytes(QuantityPCIeRx) })},
}

var rowFields = map[uint32]field{
	142: {firstBranch, Reading.RemappedRows, TypeU32, lifetime(QuantityRowsCorrectable)},
	143: {firstBranch, Reading.RemappedRows, TypeU32, lifetime(QuantityRowsUncorrectable)},
	144: {firstBranch, Reading.RemappedRows, TypeU32, plain(func(r Reading) uint64 { return flag(r.Health.RowRemapPending) })},
	145: {firstBranch, Reading.RemappedRows, TypeU32, plain(func(r Reading) uint64 { return flag(r.RowRemapFailed()) })},
	301: {inactiveRows, Reading.RemappedRows, TypeU32, constant(0)},
	302: {inactiveRows, Reading.RemappedRows, TypeU32, constant(0)},
}

// unsupportedFields exist, but no board of the catalog supports them: by first id, last id and branch.
func unsupportedFields() map[uint32]field {
	list := map[uint32]field{}
	for _, span := range [][3]uint32{
		{7, 10, firstBranch}, {13, 21, firstBranch}, {24, 28, firstBranch}, {60, 73, firstBranch}, {84, 89, firstBranch},
		{120, 137, firstBranch}, {146, 147, firstBranch}, {148, 160, linkECCBranch}, {167, 168, hopperBranch}, {170, 172, hopperBranch},
		{183, 183, hopperBranch}, {200, 201, pcieBytes}, {203, 203, link5Branch}, {205, 207, link5Branch}, {209, 212, link5Branch},
		{216, 229, link5Branch}, {231, 250, recoveryBranch}, {251, 268, reasonBranch}, {272, 288, reasonBranch}, {289, 300, stallBranch},
		{303, 307, inactiveRows},
	} {
		for id := span[0]; id <= span[1]; id++ {
			list[id] = field{since: int(span[2]), has: noGPU}
		}
	}
	return list
}

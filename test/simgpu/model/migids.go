package model

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// instanceID returns the id of the GPU instance at a placement, whatever its profile: instances of each size are numbered from the start of
// the GPU, after the numbers of all larger sizes. The largest gets 0. So an instance that is created again at a placement gets the same id.
func (m MIGSupport) instanceID(at Placement) uint32 {
	return m.units()/at.Size - 1 + at.Start/at.Size
}

// engine returns the graphics engine of a compute instance: the first one of its compute slices.
func (m MIGSupport) engine(of, inside Placement) uint32 {
	unit := m.units()
	for _, p := range m.Profiles {
		unit = min(unit, p.Size)
	}
	return of.Start/unit + inside.Start
}

// units counts the memory slices of the GPU.
func (m MIGSupport) units() uint32 {
	units := uint32(0)
	for _, p := range m.Profiles {
		units = max(units, p.Size)
	}
	return units
}

// migUUID returns a name-based UUID (RFC 4122, version 5) in the namespace of the GPU. It depends on the GPU instance id and the engine,
// and not on the time of creation, the profile or the size.
func migUUID(g *gpu, instance, engine uint32) string {
	namespace, _ := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(g.id.UUID, "GPU-"), "-", ""))
	name := binary.LittleEndian.AppendUint32([]byte("MIG"), instance)
	sum := sha1.Sum(append(namespace, binary.LittleEndian.AppendUint32(name, engine)...))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x50, b[8]&0x3f|0x80
	return "MIG-" + fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

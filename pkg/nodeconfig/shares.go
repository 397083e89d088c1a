package nodeconfig

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	mebibyte = 1 << 20
	// mpsReserve is the memory of a GPU that shares cannot have: the MPS server and its contexts take some.
	mpsReserve = 512 * mebibyte
	// mpsShm is the size of /dev/shm if the configuration sets none.
	mpsShm = 1 << 30
)

// sharedModes reads the modes of entry i in which several claims share an entire GPU.
func (r *resolution) sharedModes(i int, g *gpu.GPU, modes *gpu.Modes) {
	entry := &r.config.GPUs[i]
	if slices.Contains(entry.Modes, v1alpha1.ModeTimeSlice) {
		modes.TimeSlice = replicas(entry.TimeSlice)
	}
	modes.MPS = r.mps(i, g)
}

// replicas reads the settings of mode timeslice, which Validate has seen to be there.
func replicas(t *v1alpha1.NodeTimeSlice) *gpu.Replicas {
	r := &gpu.Replicas{Count: int(*t.Replicas), Interval: gpu.IntervalDefault}
	if t.Interval != nil {
		r.Interval = gpu.Interval(*t.Interval)
	}
	if t.ShareName != nil {
		r.ShareName = *t.ShareName
	}
	if t.ResourceName != nil {
		r.Resource = *t.ResourceName
	}
	return r
}

// mpsEntry is mode mps of one entry for one GPU.
type mpsEntry struct {
	*resolution
	entry    int
	settings *v1alpha1.NodeMPS
	gpu      *gpu.GPU
}

// mps reads mode mps of entry i for a GPU; nil if the entry lacks it, or the GPU does not support it.
func (r *resolution) mps(i int, g *gpu.GPU) *gpu.MPSSharing {
	entry := &r.config.GPUs[i]
	if !slices.Contains(entry.Modes, v1alpha1.ModeMPS) || entry.MPS == nil {
		return nil
	}
	m := &mpsEntry{resolution: r, entry: i, settings: entry.MPS, gpu: g}
	if !m.capable() {
		return nil
	}
	count, ok := m.replicas()
	if !ok {
		return nil
	}
	memory, ok := m.memory(int64(count))
	if !ok {
		return nil
	}
	sharing := &gpu.MPSSharing{
		MPSSize: gpu.MPSSize{Replicas: count, Memory: memory, Threads: threads(m.settings.ActiveThreadPercentage)},
		// Empty namespaces become nil, so that a layout is the same after it was saved.
		Namespaces: append([]string(nil), m.settings.Namespaces...), ShmBytes: bytes(m.settings.ShmSize, mpsShm),
	}
	if m.settings.ShareName != nil {
		sharing.ShareName = *m.settings.ShareName
	}
	if m.settings.ResourceName != nil {
		sharing.Resource = *m.settings.ResourceName
	}
	return sharing
}

// path is the path of a setting, or for a translated entry the path of its resource.
func (m *mpsEntry) path(field string) string {
	return m.at(m.entry, "mps"+field, string(v1alpha1.ModeMPS))
}

// capable refuses GPUs that MPS does not share.
func (m *mpsEntry) capable() bool {
	j := slices.Index(m.config.GPUs[m.entry].Modes, v1alpha1.ModeMPS)
	at := m.at(m.entry, fmt.Sprintf("modes[%d]", j), string(v1alpha1.ModeMPS))
	const fix = "remove mode mps, or give such GPUs an entry of their own without it"
	switch {
	case !m.gpu.Product.SupportsMPS():
		m.add(at, "%s has compute capability %s, and MPS isolates and limits its clients from 7.0 on; %s", m.gpu.Product.Name,
			m.gpu.Product.ComputeCapability, fix)
	case m.gpu.Capacity.MemoryBytes == 0:
		m.add(at, "the driver does not report the memory of %s, which MPS shares divide; set memory of the entry in a NodeConfig, or %s", m.gpu.Product.Name, fix)
	default:
		return true
	}
	return false
}

// replicas is the number of claims that may share the GPU: as many as MPS supports if the entry does not set it. Numbers that no driver
// supports are refused already.
func (m *mpsEntry) replicas() (int, bool) {
	supported := m.driver.MPSClients()
	if m.settings.Replicas == nil {
		return supported, true
	}
	n := int(*m.settings.Replicas)
	if n > supported && n <= v1alpha1.MaxMPSReplicas {
		at := m.path(".replicas")
		if len(m.config.GPUs[m.entry].Origins) > 0 {
			at += ".replicas"
		}
		m.add(at, "%d is out of range; MPS supports %d clients on a GPU before CUDA 13.1, and the NVIDIA driver has CUDA %s", n, supported,
			cmp.Or(m.driver.CUDAVersion, "of a version that it does not report"))
		return 0, false
	}
	return n, n >= v1alpha1.MinMPSReplicas && n <= v1alpha1.MaxMPSReplicas
}

// memory bounds the memory of count shares.
func (m *mpsEntry) memory(count int64) (gpu.MPSMemory, bool) {
	set := m.settings.Memory
	if set == nil {
		set = &v1alpha1.ShareMemory{}
	}
	step := bytes(set.Step, mebibyte)
	b := gpu.MPSMemory{Step: step, Min: bytes(set.Min, step)}
	var ok bool
	if b.Total, ok = m.usable(set); !ok {
		return b, false
	}
	if b.Min > b.Total {
		m.add(m.path(".memory.min"), "%s is more than %s; make it smaller", size(b.Min), m.sharesHave(b.Total))
		return b, false
	}
	b.Max = b.Min + (min(bytes(set.Max, b.Total), b.Total)-b.Min)/step*step
	part := b.Total / count
	switch {
	case set.Default != nil:
		b.Default = set.Default.Value()
	case part < b.Min:
		m.add(m.path(".memory.min"), "%d shares of %s are more than %s; make them fewer or smaller", count, size(b.Min), m.sharesHave(b.Total))
		return b, false
	default:
		b.Default = min(b.Min+(part-b.Min)/step*step, b.Max)
	}
	if b.Default > b.Max {
		m.add(m.path(".memory.default"), "%s is more than %s; make it smaller", size(b.Default), m.sharesHave(b.Total))
		return b, false
	}
	return b, true
}

// usable is the memory that all shares together may have: the memory of the GPU less the memory that MPS takes. Shares of one size may have
// the memory they need, up to all memory of the GPU.
func (m *mpsEntry) usable(set *v1alpha1.ShareMemory) (int64, bool) {
	all := int64(min(m.gpu.Capacity.MemoryBytes, math.MaxInt64))
	less := max(all-mpsReserve, 0) / mebibyte * mebibyte
	if set.Min == nil || set.Max == nil || set.Min.Cmp(*set.Max) != 0 {
		return less, true
	}
	count, one := int64(1), set.Max.Value() // as many as fit, if their number is not set
	if m.settings.Replicas != nil {
		count = int64(*m.settings.Replicas)
	}
	if one > all/count {
		m.add(m.path(""), "%d shares of %s are more than the %d MiB of %s; make them fewer or smaller", count, set.Max, all/mebibyte,
			m.gpu.Product.Name)
		return 0, false
	}
	return max(less, count*one), true
}

// sharesHave names the memory of all shares.
func (m *mpsEntry) sharesHave(total int64) string {
	return fmt.Sprintf("the %d MiB that all MPS shares of %s have", total/mebibyte, m.gpu.Product.Name)
}

// threads bounds the active thread percentages.
func threads(set *v1alpha1.ShareThreads) gpu.MPSThreads {
	bounds := gpu.MPSThreads{Total: 100}
	if set != nil && set.Default != nil {
		bounds.Default = int(*set.Default)
	}
	if set != nil && set.Total != nil {
		bounds.Total = int(*set.Total)
	}
	return bounds
}

// bytes is a quantity that Validate has seen to be whole, or else the default.
func bytes(q *resource.Quantity, otherwise int64) int64 {
	if q == nil {
		return otherwise
	}
	return q.Value()
}

// size is an amount of memory as users write it.
func size(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// Package abi is the C interface of the simulated NVML: a table of every function
// that libnvidia-ml exports, with its parameters and the driver branch that
// introduced it, and the code that serves each from the model. The C library is
// generated from the same table.
package abi

import "github.com/prism-gpu/prism/test/simgpu/model"

// Kind is the representation of a parameter in C and on the wire.
type Kind int

// The kinds of parameters. Counted and Listed are two C parameters and two wire
// arguments: a pointer to a count, and an array of that many elements which may
// be NULL.
const (
	Pointer   Kind = iota // an opaque handle: void *
	U32                   // unsigned int or an enum
	U64                   // unsigned long long
	CString               // const char *
	Text                  // char * and unsigned int: a buffer for a string
	Output                // a struct or number that NVML fills in
	Versioned             // a struct whose first word is its version and size
	Counted               // unsigned int *count, struct *elements
	Listed                // struct *elements, unsigned int *count
	Input                 // a struct that NVML reads
	Exchanged             // a struct that NVML reads and fills in
	Filled                // int count, struct *elements that NVML reads and fills in
)

// Param is one parameter.
type Param struct {
	Kind Kind
	Name string
	Size int // bytes of an Output, Input or Exchanged, or of one element of Counted, Listed or Filled
}

// Place is the implementation of a symbol, and whether it is exported.
type Place int

// The places.
const (
	Forwarded Place = iota // exported, generated, handled by the daemon
	Written                // exported, written by hand in the C library
	Hidden                 // not exported: the C library calls it on its own
)

// Symbol is one function.
type Symbol struct {
	Name   string
	Since  int // driver branch in which the symbol was first seen
	Place  Place
	Params []Param

	answer answer
	locate locate
}

// answer serves one call; an error that is a model.Return goes to the caller.
type answer func(*call) error

// locate finds the GPU that a call concerns, for faults; AnyGPU for none.
type locate func(*call) int

// In reports whether a driver exports the symbol.
func (s Symbol) In(driver model.DriverVersion) bool { return driver.Branch() >= s.Since }

// Symbols lists the table.
func Symbols() []Symbol { return table }

// find returns nil for a name that is not in the table.
func find(name string) *Symbol { return byName[name] }

var byName = indexTable()

func indexTable() map[string]*Symbol {
	index := make(map[string]*Symbol, len(table))
	for i := range table {
		index[table[i].Name] = &table[i]
	}
	return index
}

func pointer(name string) Param       { return Param{Kind: Pointer, Name: name} }
func u32(name string) Param           { return Param{Kind: U32, Name: name} }
func u64(name string) Param           { return Param{Kind: U64, Name: name} }
func cstring(name string) Param       { return Param{Kind: CString, Name: name} }
func text(name string) Param          { return Param{Kind: Text, Name: name} }
func out(name string, size int) Param { return Param{Kind: Output, Name: name, Size: size} }
func outU32(name string) Param        { return out(name, 4) }
func outU64(name string) Param        { return out(name, 8) }
func in(name string, size int) Param  { return Param{Kind: Input, Name: name, Size: size} }
func versioned(name string) Param     { return Param{Kind: Versioned, Name: name} }
func exchanged(name string, size int) Param {
	return Param{Kind: Exchanged, Name: name, Size: size}
}
func filled(name string, size int) Param { return Param{Kind: Filled, Name: name, Size: size} }
func counted(name string, size int) Param {
	return Param{Kind: Counted, Name: name, Size: size}
}
func listed(name string, size int) Param { return Param{Kind: Listed, Name: name, Size: size} }
func placements() Param                  { return Param{Kind: Listed, Name: "placements", Size: placementSize} }
func processes(size int) Param           { return Param{Kind: Counted, Name: "processes", Size: size} }

package nvml

import "fmt"

// computeCapability is CUDA's version of a GPU's instruction set.
type computeCapability struct{ major, minor int }

// String returns "<major>.<minor>".
func (c computeCapability) String() string { return fmt.Sprintf("%d.%d", c.major, c.minor) }

// coresPer is the number of FP32 cores in a multiprocessor, from the tables of the CUDA programming guide.
var coresPer = map[string]uint32{
	"3.0": 192, "3.2": 192, "3.5": 192, "3.7": 192,
	"5.0": 128, "5.2": 128, "5.3": 128,
	"6.0": 64, "6.1": 128, "6.2": 128,
	"7.0": 64, "7.2": 64, "7.5": 64,
	"8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128,
	"9.0":  128,
	"10.0": 128, "10.1": 128, "10.3": 128, "11.0": 128, "12.0": 128, "12.1": 128,
}

// coresPerMultiprocessor converts NVML's core count into multiprocessors; zero for an unknown compute capability.
func coresPerMultiprocessor(capability string) uint32 { return coresPer[capability] }

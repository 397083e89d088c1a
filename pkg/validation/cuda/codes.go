package cuda

import "fmt"

// remedies are the codes of CUDA with a known cause, and the remedy.
var remedies = map[int]string{
	2:   "out of memory: other processes use the memory of the GPU",
	3:   "not initialized",
	46:  "the device is not available: another process uses it in exclusive mode, or it is in an error state",
	100: "no device: the driver cannot use the GPU; nvidia-smi on the node shows its state",
	101: "invalid device",
	214: "uncorrectable ECC error: reset the GPU",
	802: "the system is not ready: check nvidia-fabricmanager of the node",
	803: "the library and the kernel module of the driver have different versions: restart the node",
	804: "the CUDA compatibility library does not support the GPU: set cudaCompat of the chart to false",
	805: "the MPS control daemon does not answer: check the pod of the MPS service of the node",
	999: "unknown error: dmesg of the node shows XID errors of the GPU",
}

// failed returns the error of a function; nil for code 0.
func failed(function string, code int) error {
	if code == 0 {
		return nil
	}
	if remedy := remedies[code]; remedy != "" {
		return fmt.Errorf("%s returned %d, %s", function, code, remedy)
	}
	return fmt.Errorf("%s returned %d: nvidia-smi and dmesg of the node show the state of the GPU", function, code)
}

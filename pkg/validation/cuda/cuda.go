// Package cuda calls the CUDA driver library libcuda.so.1, which it loads at run time.
package cuda

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static int initialize(void *symbol) { return ((int (*)(unsigned int))symbol)(0); }

struct version { int code, version; };
static struct version driver_version(void *symbol) {
	struct version v = { 0, 0 };
	v.code = ((int (*)(int *))symbol)(&v.version);
	return v;
}

struct count { int code, count; };
static struct count device_count(void *symbol) {
	struct count c = { 0, 0 };
	c.code = ((int (*)(int *))symbol)(&c.count);
	return c;
}

static int device_get(void *symbol, int ordinal, int *device) { return ((int (*)(int *, int))symbol)(device, ordinal); }
static int device_name(void *symbol, char *name, int length, int device) { return ((int (*)(char *, int, int))symbol)(name, length, device); }
static int device_uuid(void *symbol, unsigned char *uuid, int device) { return ((int (*)(unsigned char *, int))symbol)(uuid, device); }

// A context belongs to the thread, so it is created, used and destroyed in one call. failed is the failed function.
struct use { void *create, *destroy, *allocate, *release; const char *failed; };
static int use_device(struct use *use, int device, size_t bytes) {
	void *context;
	uint64_t address;
	int code = ((int (*)(void **, unsigned int, int))use->create)(&context, 0, device);
	use->failed = "cuCtxCreate_v2";
	if (code)
		return code;
	code = ((int (*)(uint64_t *, size_t))use->allocate)(&address, bytes);
	use->failed = "cuMemAlloc_v2";
	if (!code) {
		code = ((int (*)(uint64_t))use->release)(address);
		use->failed = "cuMemFree_v2";
	}
	int end = ((int (*)(void *))use->destroy)(context);
	if (!code && end) {
		use->failed = "cuCtxDestroy_v2";
		return end;
	}
	return code;
}
*/
import "C"

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/prism-gpu/prism/pkg/validation"
)

// library is the name of the CUDA driver library.
const library = "libcuda.so.1"

// Driver is the CUDA driver of this process.
type Driver struct{ handle unsafe.Pointer }

// Init loads the library and initializes it, and returns the CUDA version of the driver.
func (d *Driver) Init() (string, error) {
	var err error
	if d.handle, err = open(); err != nil {
		return "", err
	}
	symbol, err := d.symbol("cuInit")
	if err != nil {
		return "", err
	}
	if err := failed("cuInit", int(C.initialize(symbol))); err != nil {
		return "", err
	}
	if symbol, err = d.symbol("cuDriverGetVersion"); err != nil {
		return "", err
	}
	version := C.driver_version(symbol)
	return fmt.Sprintf("%d.%d", version.version/1000, version.version%1000/10), failed("cuDriverGetVersion", int(version.code))
}

// open loads the library by its name, or else from the path at which it is mounted: without the hooks of CDI specs, the loader searches
// other directories only.
func open() (unsafe.Pointer, error) {
	runtime.LockOSThread() // dlerror returns the error of its thread
	defer runtime.UnlockOSThread()
	for _, name := range append([]string{library}, mounted("/proc/self/mountinfo")...) {
		text := C.CString(name)
		handle := C.dlopen(text, C.RTLD_NOW|C.RTLD_GLOBAL)
		C.free(unsafe.Pointer(text))
		if handle != nil {
			return handle, nil
		}
	}
	return nil, fmt.Errorf("the container has no %s that can be loaded (%s): check nvidiaDriverRoot of the chart, and that the driver of the node is complete",
		library, C.GoString(C.dlerror()))
}

// mounted returns the mount points of files of the library.
func mounted(mountinfo string) (paths []string) {
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(filepath.Base(fields[4]), "libcuda.so.") {
			paths = append(paths, fields[4])
		}
	}
	return paths
}

func (d *Driver) symbol(name string) (unsafe.Pointer, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	if symbol := C.dlsym(d.handle, text); symbol != nil {
		return symbol, nil
	}
	return nil, fmt.Errorf("%s of the driver lacks %s: upgrade the driver of the node", library, name)
}

// symbols returns functions in the order of their names.
func (d *Driver) symbols(names ...string) (found []unsafe.Pointer, err error) {
	for _, name := range names {
		symbol, err := d.symbol(name)
		if err != nil {
			return nil, err
		}
		found = append(found, symbol)
	}
	return found, nil
}

// Devices returns the devices that CUDA sees.
func (d *Driver) Devices() (devices []validation.Device, err error) {
	functions, err := d.symbols("cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetUuid_v2")
	if err != nil {
		return nil, err
	}
	count := C.device_count(functions[0])
	if err := failed("cuDeviceGetCount", int(count.code)); err != nil {
		return nil, err
	}
	for ordinal := range count.count {
		var device C.int
		name, uuid := (*C.char)(C.calloc(1, 256)), (*C.uchar)(C.calloc(1, 16))
		err := errors.Join(
			failed("cuDeviceGet", int(C.device_get(functions[1], ordinal, &device))),
			failed("cuDeviceGetName", int(C.device_name(functions[2], name, 256, device))),
			failed("cuDeviceGetUuid_v2", int(C.device_uuid(functions[3], uuid, device))))
		devices = append(devices, validation.Device{UUID: text(C.GoBytes(unsafe.Pointer(uuid), 16)), Name: C.GoString(name)})
		C.free(unsafe.Pointer(name))
		C.free(unsafe.Pointer(uuid))
		if err != nil {
			return nil, err
		}
	}
	return devices, nil
}

// text formats a UUID.
func text(uuid []byte) string {
	digits := hex.EncodeToString(uuid)
	return strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]}, "-")
}

// Context creates a context on a device, allocates and frees memory in it, and destroys it.
func (d *Driver) Context(ordinal int, bytes uint64) error {
	functions, err := d.symbols("cuDeviceGet", "cuCtxCreate_v2", "cuCtxDestroy_v2", "cuMemAlloc_v2", "cuMemFree_v2")
	if err != nil {
		return err
	}
	var device C.int
	if err := failed("cuDeviceGet", int(C.device_get(functions[0], C.int(ordinal), &device))); err != nil {
		return err
	}
	use := (*C.struct_use)(C.calloc(1, C.sizeof_struct_use))
	defer C.free(unsafe.Pointer(use))
	use.create, use.destroy, use.allocate, use.release = functions[1], functions[2], functions[3], functions[4]
	code := int(C.use_device(use, device, C.size_t(bytes)))
	return failed(C.GoString(use.failed), code)
}

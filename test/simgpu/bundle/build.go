package bundle

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Build compiles the bundle of a driver version into out.
func Build(ctx context.Context, out string, driver model.DriverVersion) error {
	for _, dir := range []string{LibDir, BinDir, ToolDir} {
		if err := os.MkdirAll(filepath.Join(out, dir), 0o755); err != nil {
			return fmt.Errorf("building driver bundle: %w", err)
		}
	}
	work, err := os.MkdirTemp("", "simgpu-src-")
	if err != nil {
		return fmt.Errorf("building driver bundle: %w", err)
	}
	defer os.RemoveAll(work)
	if err := writeSources(work, driver); err != nil {
		return err
	}
	out, err = filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("building driver bundle: %w", err)
	}
	c := compiler{ctx: ctx, dir: work, driver: driver}
	if err := c.buildLibraries(filepath.Join(out, LibDir)); err != nil {
		return err
	}
	if err := c.buildPrograms(filepath.Join(out, BinDir), programs); err != nil {
		return err
	}
	return c.buildPrograms(filepath.Join(out, ToolDir), tools)
}

func writeSources(work string, driver model.DriverVersion) error {
	generated := map[string]string{"stubs.c": stubs(driver), "exports.map": exports(driver)}
	for name, text := range generated {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	written, err := fs.Sub(sources, "csrc")
	if err != nil {
		return fmt.Errorf("reading the sources of the driver bundle: %w", err)
	}
	if err := os.CopyFS(work, written); err != nil {
		return fmt.Errorf("writing the sources of the driver bundle: %w", err)
	}
	return nil
}

// Library is one shared library of a driver.
type Library struct {
	Stem    string // "libcuda"
	Soname  string // "libcuda.so.1"
	sources []string
}

// File is the name of the versioned file.
func (l Library) File(driver model.DriverVersion) string {
	return l.Stem + ".so." + string(driver)
}

const nvmlStem = "libnvidia-ml"

var placeholder = []string{"placeholder.c", "-fvisibility=default"}

var allLibraries = []struct {
	Library
	since int
}{
	{Library{nvmlStem, "libnvidia-ml.so.1", []string{
		"stubs.c", "session.c", "transport.c", "place.c", "exporttable.c", "memlimits.c", "gpm.c", "-pthread", "-Wl,--version-script=exports.map", "-ldl",
	}}, 0},
	{Library{"libcuda", "libcuda.so.1", []string{
		"cuda.c", "cuda_device.c", "cuda_mps.c", "mps.c", "transport.c", "place.c", "-pthread", "-ldl",
	}}, 0},
	{Library{"libnvcuvid", "libnvcuvid.so.1", placeholder}, 0},
	{Library{"libnvidia-encode", "libnvidia-encode.so.1", placeholder}, 0},
	{Library{"libnvidia-opticalflow", "libnvidia-opticalflow.so.1", placeholder}, 0},
	{Library{"libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1", placeholder}, 0},
	{Library{"libnvidia-opencl", "libnvidia-opencl.so.1", placeholder}, 0},
	{Library{"libnvidia-cfg", "libnvidia-cfg.so.1", placeholder}, 0},
	{Library{"libnvidia-allocator", "libnvidia-allocator.so.1", placeholder}, 450},
	{Library{"libnvidia-nvvm", "libnvidia-nvvm.so.4", placeholder}, 470},
	{Library{"libcudadebugger", "libcudadebugger.so.1", placeholder}, 510},
	{Library{"libnvidia-pkcs11-openssl3", "libnvidia-pkcs11-openssl3.so." + versionMark, placeholder}, 535},
	{Library{"libnvidia-gpucomp", "libnvidia-gpucomp.so." + versionMark, placeholder}, 545},
}

// versionMark is replaced by the driver version in a soname.
const versionMark = "VERSION"

// libraries lists the libraries of a driver version.
func libraries(driver model.DriverVersion) []Library {
	var list []Library
	for _, row := range allLibraries {
		if driver.Branch() < row.since {
			continue
		}
		library := row.Library
		if library.Soname == library.Stem+".so."+versionMark {
			library.Soname = library.File(driver)
		}
		list = append(list, library)
	}
	return list
}

// Libraries lists the libraries in LibDir of the driver's bundle.
func Libraries(driver model.DriverVersion) []Library { return libraries(driver) }

func (c compiler) buildLibraries(dir string) error {
	for _, library := range libraries(c.driver) {
		out := filepath.Join(dir, library.File(c.driver))
		args := []string{"-shared", "-fPIC", "-Wl,-soname," + library.Soname}
		if err := c.run(out, append(args, library.sources...)...); err != nil {
			return err
		}
	}
	return nil
}

// programs of a driver, with their sources.
var programs = map[string][]string{
	"nvidia-smi":              {"smi.c", "smi_query.c", "smi_apps.c", "smi_table.c", "smi_policy.c", "smi_mig.c", "smi_reset.c"},
	"nvidia-persistenced":     {"program.c"},
	"nvidia-debugdump":        {"program.c"},
	"nvidia-cuda-mps-control": {"mps_control.c", "mps_commands.c", "mps_servers.c", "mps_ui.c", "mps.c"},
	"nvidia-cuda-mps-server":  {"mps_server.c", "mps.c"},
}

// tools are programs for tests, which no driver installs.
var tools = map[string][]string{GPUMem: {"gpu_mem.c"}, GPULoad: {"gpu_load.c"}}

func (c compiler) buildPrograms(dir string, programs map[string][]string) error {
	for name, files := range programs {
		if err := c.run(filepath.Join(dir, name), append(append([]string{}, files...), "-ldl")...); err != nil {
			return err
		}
	}
	return nil
}

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
	for _, dir := range []string{LibDir, BinDir} {
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
	return c.buildPrograms(filepath.Join(out, BinDir))
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
	Stem   string // "libcuda"
	Soname string // "libcuda.so.1"
	source string
}

// File is the name of the versioned file.
func (l Library) File(driver model.DriverVersion) string {
	return l.Stem + ".so." + string(driver)
}

const nvmlStem = "libnvidia-ml"

var allLibraries = []struct {
	Library
	since int
}{
	{Library{nvmlStem, "libnvidia-ml.so.1", ""}, 0},
	{Library{"libcuda", "libcuda.so.1", "cuda.c"}, 0},
	{Library{"libnvcuvid", "libnvcuvid.so.1", "placeholder.c"}, 0},
	{Library{"libnvidia-encode", "libnvidia-encode.so.1", "placeholder.c"}, 0},
	{Library{"libnvidia-opticalflow", "libnvidia-opticalflow.so.1", "placeholder.c"}, 0},
	{Library{"libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1", "placeholder.c"}, 0},
	{Library{"libnvidia-opencl", "libnvidia-opencl.so.1", "placeholder.c"}, 0},
	{Library{"libnvidia-cfg", "libnvidia-cfg.so.1", "placeholder.c"}, 0},
	{Library{"libnvidia-allocator", "libnvidia-allocator.so.1", "placeholder.c"}, 450},
	{Library{"libnvidia-nvvm", "libnvidia-nvvm.so.4", "placeholder.c"}, 470},
	{Library{"libcudadebugger", "libcudadebugger.so.1", "placeholder.c"}, 510},
	{Library{"libnvidia-pkcs11-openssl3", "libnvidia-pkcs11-openssl3.so." + versionMark, "placeholder.c"}, 535},
	{Library{"libnvidia-gpucomp", "libnvidia-gpucomp.so." + versionMark, "placeholder.c"}, 545},
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
		if library.Stem == nvmlStem {
			args = append(args, "-Wl,--version-script=exports.map", "-pthread",
				"stubs.c", "session.c", "transport.c", "place.c", "exporttable.c", "-ldl")
		} else {
			args = append(args, "-fvisibility=default", library.source)
		}
		if err := c.run(out, args...); err != nil {
			return err
		}
	}
	return nil
}

// programs of a driver, with their sources.
var programs = map[string][]string{
	"nvidia-smi":              {"smi.c", "smi_query.c", "smi_table.c", "smi_policy.c", "smi_mig.c"},
	"nvidia-persistenced":     {"program.c"},
	"nvidia-debugdump":        {"program.c"},
	"nvidia-cuda-mps-control": {"program.c"},
	"nvidia-cuda-mps-server":  {"program.c"},
}

func (c compiler) buildPrograms(dir string) error {
	for name, files := range programs {
		if err := c.run(filepath.Join(dir, name), append(append([]string{}, files...), "-ldl")...); err != nil {
			return err
		}
	}
	return nil
}

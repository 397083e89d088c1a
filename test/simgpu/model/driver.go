package model

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// DefaultDriver is the driver version of a spec without one.
const DefaultDriver DriverVersion = "580.95.05"

// DriverVersion is a driver version as NVIDIA writes it: "580.95.05".
type DriverVersion string

var driverVersionForm = regexp.MustCompile(`^[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{1,3})?$`)

// ParseDriverVersion checks the format and that the branch is simulated.
func ParseDriverVersion(s string) (DriverVersion, error) {
	if !driverVersionForm.MatchString(s) {
		return "", fmt.Errorf("reading driver version %q: want a form such as %s", s, DefaultDriver)
	}
	version := DriverVersion(s)
	if first := cudaOfBranch[0].branch; version.Branch() < first {
		return "", fmt.Errorf("reading driver version %q: the oldest simulated branch is %d", s, first)
	}
	return version, nil
}

// String is the version as written.
func (v DriverVersion) String() string { return string(v) }

// Branch is the release branch: 580 of "580.95.05", and 0 without one.
func (v DriverVersion) Branch() int {
	head, _, _ := strings.Cut(string(v), ".")
	branch, err := strconv.Atoi(head)
	if err != nil {
		return 0
	}
	return branch
}

// The CUDA version that ships with each driver branch, oldest first.
var cudaOfBranch = []struct{ branch, cuda int }{
	{450, 11000}, {455, 11010}, {460, 11020}, {465, 11030}, {470, 11040},
	{495, 11050}, {510, 11060}, {515, 11070}, {520, 11080},
	{525, 12000}, {530, 12010}, {535, 12020}, {545, 12030}, {550, 12040},
	{555, 12050}, {560, 12060}, {565, 12070}, {570, 12080}, {575, 12090},
	{580, 13000}, {590, 13010}, {595, 13020}, {610, 13030}, {615, 13040},
}

// CUDA is the CUDA version of the driver as NVML counts it: 13000 for 13.0.
func (v DriverVersion) CUDA() int {
	cuda := 0
	for _, row := range cudaOfBranch {
		if row.branch <= v.Branch() {
			cuda = row.cuda
		}
	}
	return cuda
}

// NVML is the version string of the library that belongs to the driver.
func (v DriverVersion) NVML() string {
	return fmt.Sprintf("%d.%s", v.CUDA()/1000, v)
}

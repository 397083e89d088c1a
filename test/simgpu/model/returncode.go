package model

import (
	"fmt"
	"strconv"
)

// Return is an NVML return code. As an error it is never Success: functions
// here return nil when they succeed.
type Return int32

// The return codes, with NVML's numbers.
const (
	Success               Return = 0
	Uninitialized         Return = 1
	InvalidArgument       Return = 2
	NotSupported          Return = 3
	NoPermission          Return = 4
	AlreadyInitialized    Return = 5
	NotFound              Return = 6
	InsufficientSize      Return = 7
	InsufficientPower     Return = 8
	DriverNotLoaded       Return = 9
	Timeout               Return = 10
	IRQIssue              Return = 11
	LibraryNotFound       Return = 12
	FunctionNotFound      Return = 13
	CorruptedInfoROM      Return = 14
	GPUIsLost             Return = 15
	ResetRequired         Return = 16
	OperatingSystem       Return = 17
	LibRMVersionMismatch  Return = 18
	InUse                 Return = 19
	OutOfMemory           Return = 20
	NoData                Return = 21
	VGPUECCNotSupported   Return = 22
	InsufficientResources Return = 23
	FreqNotSupported      Return = 24
	VersionMismatch       Return = 25
	Deprecated            Return = 26
	NotReady              Return = 27
	GPUNotFound           Return = 28
	InvalidState          Return = 29
	Unknown               Return = 999
)

// returnTexts are the texts of NVIDIA's library 550.163.01.
var returnTexts = map[Return]string{
	Success:               "Success",
	Uninitialized:         "Uninitialized",
	InvalidArgument:       "Invalid Argument",
	NotSupported:          "Not Supported",
	NoPermission:          "Insufficient Permissions",
	AlreadyInitialized:    "Already Initialized",
	NotFound:              "Not Found",
	InsufficientSize:      "Insufficient Size",
	InsufficientPower:     "Insufficient External Power",
	DriverNotLoaded:       "Driver Not Loaded",
	Timeout:               "Timeout",
	IRQIssue:              "Interrupt Request Issue",
	LibraryNotFound:       "NVML Shared Library Not Found",
	FunctionNotFound:      "Function Not Found",
	CorruptedInfoROM:      "Corrupted infoROM",
	GPUIsLost:             "GPU is lost",
	ResetRequired:         "GPU requires reset",
	OperatingSystem:       "GPU access blocked by the operating system",
	LibRMVersionMismatch:  "Driver/library version mismatch",
	InUse:                 "In use by another client",
	OutOfMemory:           "Insufficient Memory",
	NoData:                "No data",
	VGPUECCNotSupported:   "vGPU ECC not supported",
	InsufficientResources: "Insufficient Resources",
	FreqNotSupported:      "Invalid Frequency",
	VersionMismatch:       "Argument version mismatch",
	Deprecated:            "Requested functionality has been deprecated",
	NotReady:              "System is not in ready state",
	GPUNotFound:           "No supported GPUs were found",
	InvalidState:          "Resource not in correct state to perform requested operation",
	Unknown:               "Unknown Error",
}

// Error is the text of nvmlErrorString.
func (r Return) Error() string {
	if text, ok := returnTexts[r]; ok {
		return text
	}
	return "Unknown Error"
}

// laterReturns is the driver branch from which the library knows GPUNotFound and later codes.
const laterReturns = 550

// Returns lists every code that the library of a driver knows and its text, for its nvmlErrorString.
func Returns(driver DriverVersion) map[Return]string {
	texts := make(map[Return]string, len(returnTexts))
	for code, text := range returnTexts {
		if code < GPUNotFound || code == Unknown || driver.Branch() >= laterReturns {
			texts[code] = text
		}
	}
	return texts
}

// ParseReturn reads a code as its number ("15") or its text ("GPU is lost").
func ParseReturn(s string) (Return, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if _, ok := returnTexts[Return(n)]; ok {
			return Return(n), nil
		}
		return 0, fmt.Errorf("reading NVML return code %q: no such code is simulated", s)
	}
	for code, text := range returnTexts {
		if text == s {
			return code, nil
		}
	}
	return 0, fmt.Errorf("reading NVML return code %q: want a number such as 15, or a text such as %q", s, GPUIsLost.Error())
}

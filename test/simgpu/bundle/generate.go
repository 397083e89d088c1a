package bundle

import (
	"fmt"
	"sort"
	"strings"

	"github.com/prism-gpu/prism/test/simgpu/abi"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// stubs returns the C functions of a driver version.
func stubs(driver model.DriverVersion) string {
	var b strings.Builder
	b.WriteString("/* Generated from the table of package abi. */\n#include <string.h>\n\n#include \"client.h\"\n")
	for _, symbol := range abi.Symbols() {
		if symbol.Place == abi.Forwarded && symbol.In(driver) {
			b.WriteString(stub(symbol))
		}
	}
	b.WriteString(errorString(driver))
	return b.String()
}

func stub(symbol abi.Symbol) string {
	var params, checks, args []string
	for _, p := range symbol.Params {
		params = append(params, cParams(p)...)
		if p.Kind == abi.CString || p.Kind == abi.Counted || p.Kind == abi.Listed {
			checks = append(checks, fmt.Sprintf("\tif (!%s)\n\t\treturn simgpu_refused(NVML_INVALID_ARGUMENT);\n", cRequired(p)))
		}
		args = append(args, cArgs(p)...)
	}
	return fmt.Sprintf("\nEXPORT int %s(%s)\n{\n%s\tstruct arg args[] = { %s };\n\treturn simgpu_call(\"%s\", args, %d);\n}\n",
		symbol.Name, strings.Join(params, ", "), strings.Join(checks, ""), strings.Join(args, ", "), symbol.Name, len(args))
}

func cParams(p abi.Param) []string {
	switch p.Kind {
	case abi.U32:
		return []string{"unsigned int " + p.Name}
	case abi.U64:
		return []string{"unsigned long long " + p.Name}
	case abi.CString:
		return []string{"const char *" + p.Name}
	case abi.Text:
		return []string{"char *" + p.Name, "unsigned int " + p.Name + "_size"}
	case abi.Counted:
		return []string{"unsigned int *" + p.Name + "_count", "void *" + p.Name}
	case abi.Listed:
		return []string{"void *" + p.Name, "unsigned int *" + p.Name + "_count"}
	case abi.Filled:
		return []string{"int " + p.Name + "_count", "void *" + p.Name}
	default:
		return []string{"void *" + p.Name}
	}
}

func cRequired(p abi.Param) string {
	if p.Kind == abi.Counted || p.Kind == abi.Listed {
		return p.Name + "_count"
	}
	return p.Name
}

func cArgs(p abi.Param) []string {
	switch p.Kind {
	case abi.CString:
		return []string{fmt.Sprintf("STRING(%s)", p.Name)}
	case abi.Text:
		return []string{fmt.Sprintf("ROOM(%s, %s_size)", p.Name, p.Name)}
	case abi.Output:
		return []string{fmt.Sprintf("ROOM(%s, %d)", p.Name, p.Size)}
	case abi.Versioned:
		return []string{fmt.Sprintf("EXCHANGE(%s, simgpu_struct_size(%s))", p.Name, p.Name)}
	case abi.Exchanged:
		return []string{fmt.Sprintf("EXCHANGE(%s, %d)", p.Name, p.Size)}
	case abi.Filled:
		return []string{fmt.Sprintf("EXCHANGE(%s, simgpu_array_size(%s, (unsigned int)%s_count, %d))", p.Name, p.Name, p.Name, p.Size)}
	case abi.Input:
		return []string{fmt.Sprintf("GIVEN(%s, %d)", p.Name, p.Size)}
	case abi.Counted:
		return cArray(p)
	case abi.Listed:
		array := cArray(p)
		return []string{array[1], array[0]}
	default:
		return []string{fmt.Sprintf("VALUE(%s)", p.Name)}
	}
}

// cArray are the arguments count and elements.
func cArray(p abi.Param) []string {
	return []string{
		fmt.Sprintf("EXCHANGE(%s_count, 4)", p.Name),
		fmt.Sprintf("ROOM(%s, simgpu_array_size(%s, *%s_count, %d))", p.Name, p.Name, p.Name, p.Size),
	}
}

func errorString(driver model.DriverVersion) string {
	texts := model.Returns(driver)
	codes := make([]int, 0, len(texts))
	for code := range texts {
		codes = append(codes, int(code))
	}
	sort.Ints(codes)
	var b strings.Builder
	b.WriteString("\nEXPORT const char *nvmlErrorString(int code)\n{\n\tswitch (code) {\n")
	for _, code := range codes {
		fmt.Fprintf(&b, "\tcase %d:\n\t\treturn %q;\n", code, texts[model.Return(code)])
	}
	fmt.Fprintf(&b, "\t}\n\treturn %q;\n}\n", model.Unknown.Error())
	return b.String()
}

// exports returns the linker version script with the exported symbols.
func exports(driver model.DriverVersion) string {
	var b strings.Builder
	b.WriteString("{\n  global:\n")
	for _, symbol := range abi.Symbols() {
		if symbol.Place != abi.Hidden && symbol.In(driver) {
			fmt.Fprintf(&b, "    %s;\n", symbol.Name)
		}
	}
	b.WriteString("  local: *;\n};\n")
	return b.String()
}

package main

import (
	"github.com/prism-gpu/prism/pkg/config"
)

// flagsPage documents the flags of pkg/config.
func flagsPage(string) (string, error) {
	out := newText("Flags", "pkg/config")
	out.para("A flag takes precedence over its environment variable, the variable over the configuration file, and the file over the default. A dash means " +
		"that the default is empty. The Helm chart sets flags according to its [values](chart-values.md).")
	for _, program := range []struct {
		name  string
		flags []config.Flag
	}{{"prism-kubelet-plugin", config.PluginFlags()}, {"prism-controller", config.ControllerFlags()}, {"prism-mpsd", config.MPSDFlags()}, {"prism-exporter", config.ExporterFlags()}} {
		out.heading(program.name)
		t := table{head: []string{"flag", "environment variable", "file key", "default", "description"}}
		for _, f := range program.flags {
			names := []string{"--" + f.Name}
			if f.Shorthand != "" {
				names = append(names, "-"+f.Shorthand)
			}
			t.row(codes(names), codes(f.Env), code(f.Key), code(f.Default), plain(f.Usage))
		}
		out.table(t)
	}
	return out.String(), nil
}

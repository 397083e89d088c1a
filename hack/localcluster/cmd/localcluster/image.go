//go:build linux

package main

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/hack/localcluster/image"
	"github.com/prism-gpu/prism/hack/localcluster/parts"
)

func (s *session) image() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Build container images without a container engine"}
	cmd.AddCommand(
		builtin("pause", "Write the image "+image.PauseName+", which is part of every node", image.Pause),
		builtin("test", "Write the image "+image.TestName+" (C library and shell), which is part of every node", image.Test),
		imageBuild())
	return cmd
}

func builtin(name, short string, build func(context.Context, parts.Cache, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " OUT.tar",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cache, err := parts.OpenCache()
			if err != nil {
				return err
			}
			return build(cmd.Context(), cache, args[0])
		},
	}
}

// content contains the flags of `image build`.
type content struct {
	config image.Config
	output string
	rootfs string
	debian []string
	files  []string
}

func imageBuild() *cobra.Command {
	var want content
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Write an image with files of this machine and of Debian packages",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return want.build(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&want.config.Name, "name", "", "full reference of the image, for example localhost/prism:dev")
	flags.StringVar(&want.output, "output", "", "archive to write")
	flags.StringVar(&want.rootfs, "rootfs", "", "folder whose content is the root of the image")
	flags.StringArrayVar(&want.files, "file", nil, "HOST_PATH:IMAGE_PATH[:MODE], a file to add; can be repeated")
	flags.StringSliceVar(&want.debian, "debian", nil, "Debian packages to unpack into the image, for example libc6,busybox-static")
	flags.StringSliceVar(&want.config.Entrypoint, "entrypoint", nil, "program and arguments, separated by commas")
	flags.StringArrayVar(&want.config.Env, "env", nil, "NAME=VALUE; can be repeated")
	flags.StringVar(&want.config.User, "user", "", "user and group; root when empty")
	for _, name := range []string{"name", "output"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			exit(err)
		}
	}
	return cmd
}

func (c content) build(ctx context.Context) error {
	rootfs := image.NewRootfs(len(c.debian) > 0)
	if len(c.debian) > 0 {
		cache, err := parts.OpenCache()
		if err != nil {
			return err
		}
		if err := rootfs.Debian(ctx, cache, c.debian); err != nil {
			return err
		}
		rootfs.Accounts()
	}
	if c.rootfs != "" {
		if err := rootfs.Tree(c.rootfs, nil); err != nil {
			return err
		}
	}
	for _, text := range c.files {
		source, target, mode, err := parseFile(text)
		if err != nil {
			return err
		}
		if err := rootfs.File(target, source, mode); err != nil {
			return err
		}
	}
	return image.Write(c.output, c.config, rootfs)
}

// parseFile parses HOST_PATH:IMAGE_PATH[:MODE]; the mode is octal, and 0 if it is missing.
func parseFile(text string) (source, target string, mode fs.FileMode, err error) {
	fields := strings.Split(text, ":")
	if len(fields) < 2 || len(fields) > 3 || fields[0] == "" || !strings.HasPrefix(fields[1], "/") {
		return "", "", 0, fmt.Errorf("--file %q: want HOST_PATH:/IMAGE_PATH[:MODE], for example bin/tool:/usr/bin/tool:0755", text)
	}
	if len(fields) == 2 {
		return fields[0], fields[1], 0, nil
	}
	bits, err := strconv.ParseUint(fields[2], 8, 12)
	if err != nil || bits > 0o777 {
		return "", "", 0, fmt.Errorf("--file %q: mode %q is not an octal number up to 0777", text, fields[2])
	}
	return fields[0], fields[1], fs.FileMode(bits), nil
}

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the time of all files in an image.
var epoch = time.Unix(0, 0).UTC()

// Config configures containers of the image.
type Config struct {
	// Name is the full reference of the image in a runtime.
	Name       string
	Entrypoint []string
	// Env is a list of NAME=VALUE.
	Env []string
	// User is a name or id; empty: root.
	User string
}

// Write writes the image as an OCI archive, which containerd, Docker and Podman can load.
func Write(out string, config Config, rootfs *Rootfs) error {
	img, err := build(config, rootfs)
	if err != nil {
		return fmt.Errorf("building the image %s: %w", config.Name, err)
	}
	file, err := os.Create(out + ".new")
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", config.Name, err)
	}
	err = errors.Join(writeArchive(file, config.Name, img), file.Close())
	if err == nil {
		err = os.Rename(out+".new", out)
	}
	if err != nil {
		_ = os.Remove(out + ".new")
		return fmt.Errorf("writing the image %s: %w", config.Name, err)
	}
	return nil
}

func build(config Config, rootfs *Rootfs) (v1.Image, error) {
	opener := func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(rootfs.writeLayer(writer)) }()
		return reader, nil
	}
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	text, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	text = text.DeepCopy()
	text.OS, text.Architecture, text.Created = "linux", runtime.GOARCH, v1.Time{Time: epoch}
	text.Config = v1.Config{
		Entrypoint: config.Entrypoint, User: config.User,
		Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, config.Env...),
	}
	return mutate.ConfigFile(img, text)
}

// writeLayer writes the tree as a tar archive, in the order of the paths.
func (r *Rootfs) writeLayer(out io.Writer) error {
	archive := tar.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(r.entries)) {
		if err := writeEntry(archive, name, r.entries[name]); err != nil {
			return fmt.Errorf("adding %s: %w", name, err)
		}
	}
	return archive.Close()
}

func writeEntry(archive *tar.Writer, name string, e entry) error {
	header := &tar.Header{Name: name, Mode: permissions(e.mode), ModTime: epoch, Format: tar.FormatPAX}
	switch {
	case e.mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		return archive.WriteHeader(header)
	case e.mode&fs.ModeSymlink != 0:
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.target
		return archive.WriteHeader(header)
	}
	content, size, err := e.content()
	if err != nil {
		return err
	}
	defer content.Close()
	header.Typeflag, header.Size = tar.TypeReg, size
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, content)
	return err
}

// permissions converts Go's mode bits to Unix mode bits.
func permissions(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	for flag, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

// writeArchive writes the OCI image layout: an index that names the image, and its blobs.
func writeArchive(out io.Writer, name string, img v1.Image) error {
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	rawManifest, err := img.RawManifest()
	if err != nil {
		return err
	}
	rawConfig, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{{
		MediaType: types.OCIManifestSchema1, Digest: digest, Size: int64(len(rawManifest)),
		Platform:    &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Annotations: map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
	}}})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	err = errors.Join(
		writeBlob(archive, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		writeBlob(archive, "index.json", index),
		writeBlob(archive, blobPath(digest), rawManifest),
		writeBlob(archive, blobPath(manifest.Config.Digest), rawConfig))
	if err != nil {
		return err
	}
	if err := writeLayers(archive, img); err != nil {
		return err
	}
	return archive.Close()
}

func writeLayers(archive *tar.Writer, img v1.Image) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		var text bytes.Buffer
		_, err = io.Copy(&text, content)
		if err := errors.Join(err, content.Close(), writeBlob(archive, blobPath(digest), text.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

func blobPath(digest v1.Hash) string { return path.Join("blobs", digest.Algorithm, digest.Hex) }

func writeBlob(archive *tar.Writer, name string, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: epoch, Format: tar.FormatPAX}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}

package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// metadataVersions are the versions of the API metadata.resource.k8s.io in each file, the newest first: a program uses the first version
// that it knows. Libraries of Kubernetes 1.36 know only v1alpha1.
var metadataVersions = []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion, metadatav1alpha1.SchemeGroupVersion}

// attrSchemaVersion is the attribute with kube.SchemaVersion in the file of each device, besides the published attributes.
const attrSchemaVersion = "schemaVersion"

// versioned adds the version to the attributes, which may be nil.
func versioned(attributes map[string]resourceapi.DeviceAttribute) map[string]resourceapi.DeviceAttribute {
	all := maps.Clone(attributes)
	if all == nil {
		all = map[string]resourceapi.DeviceAttribute{}
	}
	all[attrSchemaVersion] = resourceapi.DeviceAttribute{IntValue: new(int64(kube.SchemaVersion))}
	return all
}

// MetadataFiles are the files with device attributes that the kubelet-plugin library creates for claims while device metadata is enabled.
// It removes them only while it is enabled; claims that were prepared earlier would leave their files behind.
type MetadataFiles struct {
	// dir contains a folder per claim, cdi a spec per request.
	dir, cdi, driver string
	disk             disk.Writer
}

// MetadataOf locates the library's files.
func MetadataOf(cfg *config.Plugin) MetadataFiles {
	return MetadataFiles{disk: disk.OS{}, dir: filepath.Join(cfg.PluginDir(), "dra-device-metadata"), cdi: cfg.Paths.CDIRoot, driver: cfg.DriverName}
}

// options make the library write the files. By default each of them, two for a request, costs two fsyncs. After a power cut no container
// with one of them runs, and the kubelet has the claim prepared again before it starts one.
func (m MetadataFiles) options() []kubeletplugin.Option {
	return []kubeletplugin.Option{
		kubeletplugin.CDIDirectory(m.cdi), kubeletplugin.EnableDeviceMetadata(true, metadataVersions),
		kubeletplugin.MetadataFileOps(kubeletplugin.MetadataFileOperations{WriteFile: m.write}),
	}
}

// write replaces a file completely. The library's CDI specs contain mounts without types, so types are added.
func (m MetadataFiles) write(path string, data []byte, perm os.FileMode) error {
	if filepath.Dir(path) == m.cdi {
		var err error
		if data, err = cdi.TypeMounts(data); err != nil {
			return fmt.Errorf("writing the CDI spec %s for device metadata: %w", path, err)
		}
	}
	return disk.Replace(m.disk, path, data, perm, false)
}

// Remove removes the claim's files. If device metadata was never enabled, it costs one stat of a directory.
func (m MetadataFiles) Remove(claim types.NamespacedName, uid types.UID) error {
	folder := filepath.Join(m.dir, claim.Namespace+"_"+claim.Name)
	if _, err := os.Lstat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Remove the folder last: it shows the next attempt that files remain.
	if err := m.RemoveSpecs(uid); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("removing the device metadata of claim %s: %w", claim, err)
	}
	return nil
}

// RemoveSpecs removes only the claim's CDI specs of metadata files.
func (m MetadataFiles) RemoveSpecs(uid types.UID) error {
	// This includes leftovers of an interrupted write.
	specs, err := filepath.Glob(filepath.Join(m.cdi, fmt.Sprintf("%s_metadata_%s_*.json*", m.driver, uid)))
	for _, spec := range specs {
		err = errors.Join(err, os.Remove(spec))
	}
	if err != nil {
		return fmt.Errorf("removing the device metadata of claim %s: %w", uid, err)
	}
	return nil
}

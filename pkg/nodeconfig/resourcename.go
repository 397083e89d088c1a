package nodeconfig

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	resourceDomain = "nvidia.com/"
	wholeGPU       = resourceDomain + "gpu"
	migPrefix      = resourceDomain + "mig-"
	// suffixShared is the suffix that renameByDefault appends; it resembles a part of a profile and is none.
	suffixShared = ".shared"
	// longestResource counts the domain too.
	longestResource = 63
)

// sharedName describes the devices that a resource of the file shares, and the name of the shares.
type sharedName struct {
	// profile is the profile of the shared MIG devices, empty for GPUs.
	profile string
	// resource is the extended resource that requests a share.
	resource string
	// share is the attribute shareName, nil if the shares keep the name of the shared resource.
	share *string
}

// shared reads the names of a resource; false when something is wrong with them.
func (t *translation) shared(at string, name, rename *string, renameByDefault *bool) (sharedName, bool) {
	if name == nil {
		t.refuse(at+".name", "no resource name specified; name nvidia.com/gpu or nvidia.com/mig-<profile>")
		return sharedName{}, false
	}
	base, ok := t.resourceName(at+".name", *name)
	if !ok {
		return sharedName{}, false
	}
	profile, known := profileOf(base)
	if !known {
		t.refuse(at+".name", "%s is no resource of this node; allowed: %s, or %s<profile> as in %s1g.10gb", base, wholeGPU, migPrefix, migPrefix)
		return sharedName{}, false
	}
	to, where := base, at+".name"
	switch {
	case rename != nil && *rename != "":
		to, where = *rename, at+".rename"
	case renameByDefault != nil && *renameByDefault:
		to += suffixShared
	}
	to, ok = t.resourceName(where, to)
	if !ok {
		return sharedName{}, false
	}
	shared := sharedName{profile: profile, resource: to}
	if to == base {
		return shared, true
	}
	if _, taken := profileOf(to); taken {
		t.refuse(where, "%s is the name of devices that are not shared; choose another", to)
		return sharedName{}, false
	}
	shared.share, ok = t.shareName(where, to)
	return shared, ok
}

// resourceName completes a name as the device plugin does.
func (t *translation) resourceName(at, name string) (string, bool) {
	full := name
	if !strings.HasPrefix(full, resourceDomain) {
		full = resourceDomain + full
	}
	if len(full) > longestResource {
		t.refuse(at, "fully-qualified resource name must be %d characters or less: %s", longestResource, shorten(full))
		return "", false
	}
	if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(full, resourceDomain))) > 0 {
		t.refuse(at, "incorrect format for resource name '%s'; allowed after %s: lower-case letters, digits, - and ., first and last a letter or digit",
			shorten(full), resourceDomain)
		return "", false
	}
	return full, true
}

// shareName makes an attribute of a resource name: dots are not allowed in it.
func (t *translation) shareName(at, name string) (*string, bool) {
	share := strings.ReplaceAll(strings.TrimPrefix(name, resourceDomain), ".", "-")
	switch other, taken := t.names[share]; {
	case share == gpu.NotApplicable:
		t.refuse(at, "none is what devices without a share name say; choose another name")
		return nil, false
	case taken && other != name:
		t.refuse(at, "%s and %s both come to the share name %s; choose another name", name, other, share)
		return nil, false
	}
	t.names[share] = name
	return &share, true
}

// migName matches a profile as written in resource names: "." instead of the profile's "+".
var migName = regexp.MustCompile(`^([1-9][0-9]?g\.[0-9]{1,4}gb)(\.([a-z]+(?:\.[a-z]+)*)|-[a-z]+(?:\.[a-z]+)*)?$`)

// profileOf reports the devices that a resource name stands for: a GPU, with no profile, or the MIG devices of a profile; false for
// neither.
func profileOf(name string) (string, bool) {
	if name == wholeGPU {
		return "", true
	}
	found := migName.FindStringSubmatch(strings.TrimPrefix(name, migPrefix))
	switch {
	case !strings.HasPrefix(name, migPrefix) || found == nil || strings.HasSuffix(name, suffixShared):
		return "", false
	case found[3] != "":
		return found[1] + "+" + found[3], true
	default:
		return found[1] + found[2], true
	}
}

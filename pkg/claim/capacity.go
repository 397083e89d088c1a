package claim

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// unqualified returns quantities by the names of capacities without the driver's own domain; nil for none. Names of other domains
// stay as they are.
//
// A claim may spell a capacity of the driver with the domain or without it, and its status spells it as the ResourceSlice did when the
// claim was allocated. Of both spellings at once the one with the domain counts, as for k8s.io/dynamic-resource-allocation 0.38.
func unqualified(quantities map[resourceapi.QualifiedName]resource.Quantity, driver string) map[resourceapi.QualifiedName]resource.Quantity {
	if len(quantities) == 0 {
		return nil
	}
	names := make(map[resourceapi.QualifiedName]resource.Quantity, len(quantities))
	for spelled, quantity := range quantities {
		name, qualified := strings.CutPrefix(string(spelled), driver+"/")
		if _, known := names[resourceapi.QualifiedName(name)]; qualified || !known {
			names[resourceapi.QualifiedName(name)] = quantity
		}
	}
	return names
}

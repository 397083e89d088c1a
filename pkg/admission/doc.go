// Package admission serves the validating admission webhook for opaque configuration: ResourceClaims, ResourceClaimTemplates and
// DeviceClasses with invalid configuration are denied when they are written, before any pod waits for them. The rules and their error
// messages are those of package claim. Prepare validates again, because the webhook may be unavailable.
package admission

// Package admission implements the validating admission webhook for opaque configuration: ResourceClaims, ResourceClaimTemplates and
// DeviceClasses with invalid configuration are denied when they are written, before any pod waits for them. It uses the rules and error
// messages of package claim. Prepare validates again, because the webhook may be unavailable.
package admission

package kube

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// ReportsAnnouncement is the Lease by which a node announces that it keeps reports of profiled processes. It exists whether or not the
// plugin runs, unlike its ResourceSlices, which the kubelet deletes half a minute after the plugin has gone, and is deleted with the Node.
// It is not renewed: it is written before the first report, and deleted after the last one was removed.
type ReportsAnnouncement struct {
	Client kubernetes.Interface
	// Namespace is the namespace of the Lease; DriverName and NodeName form its name, and Label contains DriverName.
	Namespace, DriverName, NodeName, Label string
}

// Set creates or deletes the Lease.
func (a ReportsAnnouncement) Set(ctx context.Context, keeps bool) error {
	change := a.remove
	if keeps {
		change = a.make
	}
	if err := change(ctx); err != nil {
		return fmt.Errorf("updating Lease %s/%s, which announces reports of node %s: %w", a.Namespace, a.name(), a.NodeName, err)
	}
	return nil
}

func (a ReportsAnnouncement) name() string { return a.DriverName + "." + a.NodeName }

func (a ReportsAnnouncement) remove(ctx context.Context) error {
	err := a.Client.CoordinationV1().Leases(a.Namespace).Delete(ctx, a.name(), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// make recreates it if it belongs to a former Node of the name, with which it would be deleted.
func (a ReportsAnnouncement) make(ctx context.Context) error {
	node, err := a.Client.CoreV1().Nodes().Get(ctx, a.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	leases := a.Client.CoordinationV1().Leases(a.Namespace)
	found, err := leases.Get(ctx, a.name(), metav1.GetOptions{})
	switch {
	case err == nil && ownedBy(found, node.UID):
		return nil
	case err == nil:
		err = a.remove(ctx)
	case apierrors.IsNotFound(err):
		err = nil
	}
	if err != nil {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: a.name(), Labels: map[string]string{a.Label: a.DriverName},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &a.NodeName},
	}, metav1.CreateOptions{})
	return err
}

func ownedBy(lease *coordinationv1.Lease, node types.UID) bool {
	for _, owner := range lease.OwnerReferences {
		if owner.UID == node {
			return true
		}
	}
	return false
}

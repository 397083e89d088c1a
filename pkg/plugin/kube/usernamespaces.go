package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// UserNamespaces finds pods with hostUsers: false on one node.
type UserNamespaces struct {
	Client   kubernetes.Interface
	NodeName string
	// Crun queries the node's container runtime whether crun starts the containers of a handler; empty is the default handler.
	Crun func(ctx context.Context, handler string) (bool, error)
}

// crunTimeout limits a query of the container runtime, before the Node is read.
const crunTimeout = time.Second

// maxConsumers limits the pods of a claim that are read: a claim has up to 256, which its owner chooses.
const maxConsumers = 16

// PodByRunc returns the name of the first pod with hostUsers: false for which the claim is reserved, and whose containers the node's
// container runtime does not start with crun; "" without one.
func (u UserNamespaces) PodByRunc(ctx context.Context, rc *resourceapi.ResourceClaim) (string, error) {
	byCrun := map[string]bool{} // by the name of the RuntimeClass
	for i, consumer := range rc.Status.ReservedFor {
		if i == maxConsumers {
			break
		}
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			continue
		}
		pod, err := podOf(ctx, u.Client, rc.Namespace, consumer.Name, consumer.UID)
		if err != nil {
			return "", fmt.Errorf("reading pod %s/%s: %w", rc.Namespace, consumer.Name, err)
		}
		if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
			continue
		}
		class := ptr.Deref(pod.Spec.RuntimeClassName, "")
		if _, known := byCrun[class]; !known {
			if byCrun[class], err = u.crun(ctx, class); err != nil {
				return "", fmt.Errorf("determining the OCI runtime of pod %s/%s: %w", rc.Namespace, consumer.Name, err)
			}
		}
		if !byCrun[class] {
			return pod.Name, nil
		}
	}
	return "", nil
}

// crun reports whether crun starts pods of a RuntimeClass; empty: no RuntimeClass.
func (u UserNamespaces) crun(ctx context.Context, class string) (bool, error) {
	if class == "" {
		return u.handledByCrun(ctx, "")
	}
	classes := u.Client.NodeV1().RuntimeClasses()
	found, err := classes.Get(ctx, class, cached)
	if apierrors.IsNotFound(err) {
		found, err = classes.Get(ctx, class, metav1.GetOptions{})
	}
	if err != nil {
		return false, fmt.Errorf("reading RuntimeClass %s: %w", class, err)
	}
	return u.handledByCrun(ctx, found.Handler)
}

// handledByCrun queries the container runtime. If it does not answer, the default of its kind is assumed: containerd uses runc, and CRI-O,
// which includes crun, uses crun except for a handler with the name runc.
func (u UserNamespaces) handledByCrun(ctx context.Context, handler string) (bool, error) {
	asking, stop := context.WithTimeout(ctx, crunTimeout)
	defer stop()
	crun, err := u.Crun(asking, handler)
	if err == nil {
		return crun, nil
	}
	klog.FromContext(ctx).Error(err, "Failed to determine the OCI runtime, using the default of the container runtime that the Node names")
	node, nodeErr := u.Client.CoreV1().Nodes().Get(ctx, u.NodeName, cached)
	if nodeErr != nil {
		return false, errors.Join(err, fmt.Errorf("reading node %s: %w", u.NodeName, nodeErr))
	}
	return strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "cri-o://") && handler != "runc", nil
}

// podOf reads the pod with that UID. A pod that is missing in the API server's cache is read from the store.
func podOf(ctx context.Context, client kubernetes.Interface, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	pods := client.CoreV1().Pods(namespace)
	found, err := pods.Get(ctx, name, cached)
	if apierrors.IsNotFound(err) || err == nil && found.UID != uid {
		found, err = pods.Get(ctx, name, metav1.GetOptions{})
	}
	if err == nil && found.UID != uid {
		err = errors.New("the pod was replaced")
	}
	return found, err
}

package profile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/cli/profile/check"
	"github.com/prism-gpu/prism/pkg/cli/reports"
	"github.com/prism-gpu/prism/pkg/profiler/rules"
)

// The ConfigMap of the chart with policy and defaults.
const (
	rulesKey    = "profiler.yaml"
	rulesLabels = "app.kubernetes.io/component=kubelet-plugin"
)

func checkCommand(c cluster) *cobra.Command {
	var format, driver string
	command := &cobra.Command{
		Use:   "check POD",
		Short: "Explain whether and why the processes of a pod are profiled",
		Long: "Explains for each container of a pod whether its processes are profiled, why, and how to change it: prints its claims, the " +
			"effective ProfilerConfig, the conditions from the node, and whether its command matches. Before a claim is prepared, the ProfilerConfig " +
			"is merged from DeviceClass and ResourceClaim, and from policy and defaults of the cluster if the user can read them.",
		Example: "  kubectl prism profile check train\n" +
			"  kubectl prism profile check train -o yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if format != "" && format != "json" && format != "yaml" {
				return fmt.Errorf("--output: unsupported value %q; supported values: json, yaml", format)
			}
			facts, err := c.facts(command.Context(), args[0], driver)
			if err != nil {
				return err
			}
			return c.result(check.Pod(facts), format)
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "", "Output format: json or yaml. The default is text.")
	command.Flags().StringVar(&driver, "driver-name", "gpu.prism.dev", "Name of the DRA driver, the chart's value driverName.")
	return command
}

// result prints a result.
func (c cluster) result(result *check.Result, format string) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(c.Out)
		encoder.SetIndent("", "    ")
		return encoder.Encode(result)
	case "yaml":
		written, err := yaml.Marshal(result)
		if err == nil {
			_, err = c.Out.Write(written)
		}
		return err
	}
	return result.Print(escaped{c.Out})
}

// facts reads all visible objects.
func (c cluster) facts(ctx context.Context, name, driver string) (*check.Facts, error) {
	asked, namespace, err := c.reports()
	if err != nil {
		return nil, err
	}
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading pod %s of namespace %s: %w", name, namespace, reason(err))
	}
	facts := &check.Facts{
		Driver: driver, Pod: pod, Unreadable: map[string]string{},
		Claims: map[string]*resourceapi.ResourceClaim{}, Classes: map[string]*resourceapi.DeviceClass{},
		NamespaceLabels: func() (map[string]string, error) {
			found, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return found.Labels, nil
		},
	}
	c.claims(ctx, client, facts)
	if facts.Rules, facts.NoProfiler, err = clusterRules(ctx, client); err != nil {
		c.say("Warning: %v", err)
	}
	list, err := asked.List(ctx, namespace, reports.Selection{Pod: name})
	if err != nil {
		c.say("Warning: %v", err)
		return facts, nil
	}
	c.missing(asked, ofReports, list.SilentNodes, list.TruncatedNodes)
	facts.Reports = list
	return facts, nil
}

// claims reads the claims of the pod, and the classes of unallocated claims.
func (c cluster) claims(ctx context.Context, client kubernetes.Interface, facts *check.Facts) {
	var names []string
	for _, claim := range facts.Pod.Spec.ResourceClaims {
		names = append(names, check.ObjectName(facts.Pod, claim.Name))
	}
	if extended := facts.Pod.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	for _, name := range names {
		if name == "" || facts.Claims[name] != nil {
			continue
		}
		claim, err := client.ResourceV1().ResourceClaims(facts.Pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			facts.Unreadable["claim/"+name] = reason(err).Error()
			continue
		}
		facts.Claims[name] = claim
		for _, class := range check.Classes(claim) {
			found, err := client.ResourceV1().DeviceClasses().Get(ctx, class, metav1.GetOptions{})
			if err != nil {
				facts.Unreadable["class/"+class] = reason(err).Error()
				continue
			}
			facts.Classes[class] = found
		}
	}
}

// clusterRules reads policy and defaults of the cluster. They are nil if the user may not read them, or if several charts define some; none
// reports that the cluster defines none.
func clusterRules(ctx context.Context, client kubernetes.Interface) (found *rules.Rules, none bool, err error) {
	namespace, err := chartNamespace(ctx, client)
	switch {
	case apierrors.IsForbidden(err):
		return nil, false, nil
	case apierrors.IsNotFound(err):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("finding policy and defaults of the cluster: %w", err)
	}
	maps, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: rulesLabels})
	if apierrors.IsForbidden(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading policy and defaults of the cluster: %w", err)
	}
	var written []string
	for i := range maps.Items {
		if text, ok := maps.Items[i].Data[rulesKey]; ok {
			written = append(written, text)
		}
	}
	switch len(written) {
	case 0:
		return nil, true, nil
	case 1:
		if found, err = rules.Parse([]byte(written[0])); err != nil {
			return nil, false, fmt.Errorf("reading policy and defaults of the cluster: %w", err)
		}
		return found, false, nil
	}
	return nil, false, nil
}

// chartNamespace returns the namespace of the chart, according to the APIService, which only the chart may create. In other namespaces any
// user may create a ConfigMap with its labels.
func chartNamespace(ctx context.Context, client kubernetes.Interface) (string, error) {
	name := reports.GroupVersion.Version + "." + reports.GroupVersion.Group
	raw, err := client.CoreV1().RESTClient().Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices", name).Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var service struct {
		Spec struct {
			Service struct {
				Namespace string `json:"namespace"`
			} `json:"service"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &service); err != nil {
		return "", err
	}
	if service.Spec.Service.Namespace == "" {
		return "", fmt.Errorf("APIService %s names no service", name)
	}
	return service.Spec.Service.Namespace, nil
}

// reason returns the error of the server with a remedy.
func reason(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; an administrator can allow it", err)
	case apierrors.IsNotFound(err):
		return errors.New("it does not exist")
	}
	return err
}

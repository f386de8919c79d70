#!/usr/bin/env bash
# Runs Concertina as the only HPA controller of a disposable kind cluster (docs/getting-started/kind.md).
#
# Run it in the root of the repository. The parts marked "kind" need docker and kind, the others kubectl and a cluster.
#
#   QUICKSTART_CLUSTER=existing   use the current kubeconfig, with the built-in HPA controller switched off, and skip the
#                                 parts marked "kind" and the waits for pods
#   CONCERTINA=path               the command line tool; without it, kubectl shows the result
set -euo pipefail

cluster=${QUICKSTART_CLUSTER:-kind}
folder=target/kind
mkdir -p "$folder"

step() {
  printf '\n== %s\n' "$*"
}

if [[ $cluster == kind ]]; then # kind
  step "Build the image"
  docker build --tag concertina:kind .

  step "Create a cluster without the built-in controller"
  cat >"$folder/cluster.yaml" <<'YAML'
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
kubeadmConfigPatches:
  - |
    kind: ClusterConfiguration
    controllerManager:
      extraArgs:
        controllers: "*,bootstrapsigner,tokencleaner,-horizontal-pod-autoscaler-controller"
YAML
  kind create cluster --name concertina --config "$folder/cluster.yaml" --wait 180s
  kind load docker-image concertina:kind --name concertina

  step "Install metrics-server. Nodes of kind have self-signed kubelet certificates"
  kubectl apply -f https://github.com/kubernetes-sigs/metrics-server/releases/download/v0.9.0/components.yaml
  kubectl -n kube-system patch deployment metrics-server --type=json --patch='[
    {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--kubelet-insecure-tls"}]'
  kubectl -n kube-system rollout status deployment/metrics-server --timeout=180s
fi

step "Install Concertina"
cat >"$folder/kustomization.yaml" <<'YAML'
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - ../../deploy/kustomize/base
images:
  - name: concertina
    newTag: kind
YAML
kubectl create namespace concertina-system
kubectl apply -k "$folder"
if [[ $cluster == kind ]]; then
  kubectl -n concertina-system rollout status deployment/concertina --timeout=180s
fi

step "Create a workload that uses all the CPU that it gets, and its HPA"
kubectl create namespace try
kubectl -n try apply -f examples/handover/workload.yaml
if [[ $cluster == kind ]]; then # needs pods and their metrics
  kubectl -n try wait hpa/web --for=jsonpath='{.status.currentReplicas}'=3 --timeout=300s
fi

step "Why has the HPA its replica count?"
if [[ -n ${CONCERTINA:-} ]]; then
  "$CONCERTINA" why -n try web
else
  kubectl -n try describe hpa web
fi

if [[ $cluster == kind ]]; then
  step "The cluster is left running. Delete it with: kind delete cluster --name concertina"
fi

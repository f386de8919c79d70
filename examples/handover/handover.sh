#!/usr/bin/env bash
# Hands an HPA, then its namespace, over from the built-in HPA controller to Concertina, and back.
#
# Run it in the root of the repository. It creates a kind cluster and needs docker, kind, kubectl and the image
# concertina:kind (docs/getting-started/kind.md, step 1). The built-in controller keeps running all the time.
#
#   HANDOVER_CLUSTER=existing   use the current kubeconfig, with Concertina installed and the HPA created already
#   HANDOVER_HPA=shop/web       the HPA; its namespace is handed over as a whole afterwards
#   HANDOVER_FLAGS="..."        more flags of each handover command, such as --from=URL
#   CONCERTINA=path             the command line tool
set -euo pipefail

cluster=${HANDOVER_CLUSTER:-kind}
hpa=${HANDOVER_HPA:-shop/web}
namespace=${hpa%%/*}
read -r -a flags <<<"${HANDOVER_FLAGS:-}"
concertina=${CONCERTINA:-concertina}

step() {
  printf '\n== %s\n' "$*"
}

handover() {
  printf '$ concertina handover %s\n' "$*"
  "$concertina" handover "$@" "${flags[@]}"
}

# A kind cluster with metrics-server. Nodes of kind have self-signed kubelet certificates.
create_cluster() {
  kind create cluster --name handover --wait 180s
  kind load docker-image concertina:kind --name handover
  kubectl apply -f https://github.com/kubernetes-sigs/metrics-server/releases/download/v0.9.0/components.yaml
  kubectl -n kube-system patch deployment metrics-server --type=json --patch='[
    {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--kubelet-insecure-tls"}]'
  kubectl -n kube-system rollout status deployment/metrics-server --timeout=180s
  kubectl create namespace "$namespace"
  kubectl -n "$namespace" apply -f examples/handover/workload.yaml
}

# Applies an overlay of the repository with the image concertina:kind.
install() {
  local folder="target/handover/$1"
  mkdir -p "$folder"
  cat >"$folder/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - ../../../deploy/kustomize/overlays/$1
images:
  - name: concertina
    newTag: kind
YAML
  kubectl apply -k "$folder"
}

if [[ $cluster == kind ]]; then
  step "Create a cluster, with the built-in controller"
  create_cluster

  step "Shadow: compare the decisions, read-only"
  kubectl create namespace concertina-system
  install shadow
  kubectl -n concertina-system rollout status deployment/concertina-shadow --timeout=180s
  sleep 120
  "$concertina" parity --since=1h

  step "Install Concertina next to the built-in controller"
  install scope-labelled
  kubectl -n concertina-system rollout status deployment/concertina --timeout=180s
fi

step "Which controller writes HPAs, and which guard fits"
handover plan

step "Hand over one HPA"
handover enable "$hpa"
handover status

step "Try the writes of the built-in controller as dry runs"
handover check

step "Hand over the namespace"
handover enable "$namespace"
handover status

step "Back to the built-in controller"
handover disable "$namespace"
handover status

if [[ $cluster == kind ]]; then
  step "The cluster is left running. Delete it with: kind delete cluster --name handover"
fi

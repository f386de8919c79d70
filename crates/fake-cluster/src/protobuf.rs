//! Reads the protobuf bodies that `kubectl create` and `kubectl autoscale` send from version 1.32 on.
//!
//! Only the fields that these commands set are known. A body with another field is refused, so that no field is lost.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// The media type.
pub(crate) const MEDIA: &str = "application/vnd.kubernetes.protobuf";
/// The bytes before the envelope `runtime.Unknown`.
const MAGIC: &[u8] = b"k8s\0";
/// Maximum depth of messages.
const DEPTH: usize = 32;

/// A message in each line, with its fields as `name=number:type`. A type with `[]` is a list, and one with `{}` is a map
/// of texts to values. A type with `?` keeps a zero. `-` is ignored.
const MESSAGES: &str = "\
Unknown type=1:TypeMeta raw=2:raw contentEncoding=3:text contentType=4:text
TypeMeta apiVersion=1:text kind=2:text
apps/v1.Deployment metadata=1:ObjectMeta spec=2:DeploymentSpec status=3:-
autoscaling/v1.HorizontalPodAutoscaler metadata=1:ObjectMeta spec=2:OldHpaSpec status=3:-
autoscaling/v2.HorizontalPodAutoscaler metadata=1:ObjectMeta spec=2:HpaSpec status=3:-
v1.ConfigMap metadata=1:ObjectMeta data=2:text{} binaryData=3:bytes{} immutable=4:bool?
v1.Namespace metadata=1:ObjectMeta spec=2:NamespaceSpec status=3:-
v1.Secret metadata=1:ObjectMeta data=2:bytes{} type=3:text stringData=4:text{} immutable=5:bool?
v1.Service metadata=1:ObjectMeta spec=2:ServiceSpec status=3:-
v1.ServiceAccount metadata=1:ObjectMeta imagePullSecrets=3:LocalRef[] automountServiceAccountToken=4:bool?
ObjectMeta name=1:text generateName=2:text namespace=3:text selfLink=4:text uid=5:text resourceVersion=6:text \
generation=7:int creationTimestamp=8:time labels=11:text{} annotations=12:text{} ownerReferences=13:Owner[] \
finalizers=14:text[] managedFields=17:-
Owner kind=1:text name=3:text uid=4:text apiVersion=5:text controller=6:bool? blockOwnerDeletion=7:bool?
LocalRef name=1:text
LabelSelector matchLabels=1:text{} matchExpressions=2:Requirement[]
Requirement key=1:text operator=2:text values=3:text[]
NamespaceSpec finalizers=1:text[]
ServiceSpec ports=1:ServicePort[] selector=2:text{} clusterIP=3:text type=4:text externalIPs=5:text[] \
sessionAffinity=7:text loadBalancerIP=8:text externalName=10:text externalTrafficPolicy=11:text \
healthCheckNodePort=12:int publishNotReadyAddresses=13:bool ipFamilyPolicy=17:text clusterIPs=18:text[] \
ipFamilies=19:text[]
ServicePort name=1:text protocol=2:text port=3:int targetPort=4:intstr nodePort=5:int appProtocol=6:text
DeploymentSpec replicas=1:int? selector=2:LabelSelector template=3:PodTemplate strategy=4:Strategy \
minReadySeconds=5:int revisionHistoryLimit=6:int? paused=7:bool progressDeadlineSeconds=9:int?
Strategy type=1:text rollingUpdate=2:RollingUpdate
RollingUpdate maxUnavailable=1:intstr maxSurge=2:intstr
PodTemplate metadata=1:ObjectMeta spec=2:PodSpec
PodSpec containers=2:Container[] restartPolicy=3:text terminationGracePeriodSeconds=4:int? dnsPolicy=6:text \
nodeSelector=7:text{} serviceAccountName=8:text serviceAccount=9:text nodeName=10:text hostNetwork=11:bool \
hostPID=12:bool hostIPC=13:bool imagePullSecrets=15:LocalRef[] hostname=16:text subdomain=17:text \
schedulerName=19:text initContainers=20:Container[] priorityClassName=24:text
Container name=1:text image=2:text command=3:text[] args=4:text[] workingDir=5:text ports=6:Port[] env=7:Env[] \
resources=8:Resources terminationMessagePath=13:text imagePullPolicy=14:text stdin=16:bool stdinOnce=17:bool \
tty=18:bool terminationMessagePolicy=20:text
Port name=1:text hostPort=2:int containerPort=3:int protocol=4:text hostIP=5:text
Env name=1:text value=2:text
Resources limits=1:quantity{} requests=2:quantity{}
OldHpaSpec scaleTargetRef=1:Target minReplicas=2:int? maxReplicas=3:int targetCPUUtilizationPercentage=4:int?
HpaSpec scaleTargetRef=1:Target minReplicas=2:int? maxReplicas=3:int metrics=4:Metric[] behavior=5:Behavior
Target kind=1:text name=2:text apiVersion=3:text
Metric type=1:text object=2:Object pods=3:Pods resource=4:Resource external=5:External \
containerResource=7:ContainerResource
Object describedObject=1:Target target=2:Amount metric=3:Identifier
Pods metric=1:Identifier target=2:Amount
Resource name=1:text target=2:Amount
ContainerResource name=1:text target=2:Amount container=3:text
External metric=1:Identifier target=2:Amount
Identifier name=1:text selector=2:LabelSelector
Amount type=1:text value=2:quantity averageValue=3:quantity averageUtilization=4:int?
Behavior scaleUp=1:Rules scaleDown=2:Rules
Rules selectPolicy=1:text policies=2:Policy[] stabilizationWindowSeconds=3:int? tolerance=4:quantity
Policy type=1:text value=2:int periodSeconds=3:int
Quantity string=1:text
IntOrString type=1:int intVal=2:int strVal=3:text
Time seconds=1:int nanos=2:int
";

/// The reason why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("the body is not Kubernetes protobuf")]
    Malformed,
    #[error("{0} is not supported in protobuf: send JSON")]
    Kind(String),
    #[error("field {number} of {message} is not supported in protobuf: send JSON")]
    Field { message: String, number: u64 },
}

/// Reads a body as the object that it would be in JSON.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::Malformed)?;
    let (mut kind, mut raw) = (Map::new(), &[][..]);
    let mut rest = envelope;
    while let Some((number, content)) = next(&mut rest)? {
        match (number, content) {
            (1, Content::Bytes(bytes)) => kind = message("TypeMeta", bytes, DEPTH)?,
            (2, Content::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let text = |name: &str| kind.get(name).and_then(Value::as_str).unwrap_or_default();
    let name = format!("{}.{}", text("apiVersion"), text("kind"));
    if line(&name).is_none() {
        return Err(ProtobufError::Kind(name));
    }
    let mut object = message(&name, raw, DEPTH)?;
    object.append(&mut kind);
    Ok(object.into())
}

/// The content of a field.
#[derive(Clone, Copy)]
enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Splits off the first field of a message: its number and its content.
fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<(u64, Content<'a>)>, ProtobufError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let key = varint(rest)?;
    let content = match key & 7 {
        0 => Content::Number(varint(rest)?),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| ProtobufError::Malformed)?;
            let (content, after) = rest.split_at_checked(length).ok_or(ProtobufError::Malformed)?;
            *rest = after;
            Content::Bytes(content)
        }
        _ => return Err(ProtobufError::Malformed),
    };
    Ok(Some((key >> 3, content)))
}

fn varint(rest: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(ProtobufError::Malformed)?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(ProtobufError::Malformed)
}

/// The fields of a message, from [`MESSAGES`].
fn line(name: &str) -> Option<&'static str> {
    MESSAGES
        .lines()
        .find_map(|line| line.split_once(' ').filter(|(found, _)| *found == name))
        .map(|(_, fields)| fields)
}

fn message(name: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, ProtobufError> {
    let depth = depth.checked_sub(1).ok_or(ProtobufError::Malformed)?;
    let fields = line(name).ok_or_else(|| ProtobufError::Kind(name.to_owned()))?;
    let (mut object, mut rest) = (Map::new(), bytes);
    while let Some((number, content)) = next(&mut rest)? {
        let declared = fields.split_ascii_whitespace().find_map(|field| {
            let (name, declared) = field.split_once('=')?;
            let (found, kind) = declared.split_once(':')?;
            (found.parse() == Ok(number)).then_some((name, kind))
        });
        let Some((field, kind)) = declared else {
            return Err(ProtobufError::Field { message: name.to_owned(), number });
        };
        if kind == "-" {
            continue;
        }
        if let Some(kind) = kind.strip_suffix("[]") {
            let list = object.entry(field).or_insert_with(|| Value::Array(Vec::new()));
            let item = value(&format!("{kind}?"), content, depth)?.unwrap_or_default();
            list.as_array_mut().ok_or(ProtobufError::Malformed)?.push(item);
        } else if let Some(kind) = kind.strip_suffix("{}") {
            let (key, value) = entry(kind, content, depth)?;
            let map = object.entry(field).or_insert_with(|| Value::Object(Map::new()));
            map.as_object_mut().ok_or(ProtobufError::Malformed)?.insert(key, value);
        } else if let Some(value) = value(kind, content, depth)? {
            object.insert(field.to_owned(), value);
        }
    }
    Ok(object)
}

/// An entry of a map: the message with the key as its first field and the value as its second.
fn entry(kind: &str, content: Content<'_>, depth: usize) -> Result<(String, Value), ProtobufError> {
    let Content::Bytes(mut rest) = content else { return Err(ProtobufError::Malformed) };
    let (mut key, mut found) = (String::new(), Value::from(""));
    while let Some((number, content)) = next(&mut rest)? {
        match number {
            1 => key = text(content)?,
            _ => found = value(&format!("{kind}?"), content, depth)?.unwrap_or_default(),
        }
    }
    Ok((key, found))
}

/// A value of a type. `None` for a zero that JSON omits.
fn value(kind: &str, content: Content<'_>, depth: usize) -> Result<Option<Value>, ProtobufError> {
    let (kind, keeps_zero) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
    let bytes = |content| match content {
        Content::Bytes(bytes) => Ok(bytes),
        Content::Number(_) => Err(ProtobufError::Malformed),
    };
    let number = |content| match content {
        // Negative numbers are their two's complement.
        Content::Number(number) => Ok(number.cast_signed()),
        Content::Bytes(_) => Err(ProtobufError::Malformed),
    };
    Ok(match kind {
        "text" => Some(text(content)?).filter(|text| keeps_zero || !text.is_empty()).map(Value::from),
        "bytes" => Some(STANDARD.encode(bytes(content)?).into()),
        "int" => Some(number(content)?).filter(|number| keeps_zero || *number != 0).map(Value::from),
        "bool" => Some(number(content)? != 0).filter(|is| keeps_zero || *is).map(Value::from),
        "quantity" => message("Quantity", bytes(content)?, depth)?.remove("string"),
        "intstr" => {
            let mut found = message("IntOrString", bytes(content)?, depth)?;
            let is_text = found.contains_key("type");
            let value = found.remove(if is_text { "strVal" } else { "intVal" });
            Some(value.unwrap_or_else(|| if is_text { "".into() } else { 0.into() }))
        }
        "time" => {
            let found = message("Time", bytes(content)?, depth)?;
            let seconds = found.get("seconds").and_then(Value::as_i64);
            let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
            time.map(|time| crate::object::time_text(time).into())
        }
        name => Some(message(name, bytes(content)?, depth)?.into()),
    })
}

fn text(content: Content<'_>) -> Result<String, ProtobufError> {
    let Content::Bytes(bytes) = content else { return Err(ProtobufError::Malformed) };
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Malformed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A field of bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend(content);
        bytes
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let (version, kind) = kind.split_once('.').unwrap();
        let kind = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &kind), field(2, raw), field(3, b""), field(4, b"")].concat()
    }

    #[test]
    fn object_is_the_same_as_in_json() {
        let label = [field(1, b"app"), field(2, b"web")].concat();
        let metadata = [field(1, b"web"), field(2, b""), field(8, b""), field(11, &label)].concat();
        let target = [field(1, b"Deployment"), field(2, b"web")].concat();
        let spec = [field(1, &target), vec![2 << 3, 0], vec![3 << 3, 0xac, 2]].concat();
        let raw = [field(1, &metadata), field(2, &spec), field(3, &[1 << 3, 0])].concat();
        let expected = json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": { "name": "web", "labels": { "app": "web" } },
            "spec": {
                "scaleTargetRef": { "kind": "Deployment", "name": "web" }, "minReplicas": 0, "maxReplicas": 300,
            },
        });
        assert_eq!(decode(&body("autoscaling/v1.HorizontalPodAutoscaler", &raw)), Ok(expected));
        let secret = field(2, &[field(1, b"a"), field(2, &[0xff])].concat());
        let expected = json!({ "apiVersion": "v1", "kind": "Secret", "data": { "a": "/w==" } });
        assert_eq!(decode(&body("v1.Secret", &secret)), Ok(expected));
    }

    #[test]
    fn body_that_would_lose_a_field_is_refused() {
        let unknown = ProtobufError::Field { message: "v1.ConfigMap".to_owned(), number: 9 };
        assert_eq!(decode(&body("v1.ConfigMap", &field(9, b""))), Err(unknown));
        let kind = ProtobufError::Kind("batch/v1.Job".to_owned());
        assert_eq!(decode(&body("batch/v1.Job", b"")), Err(kind));
        for malformed in
            [&b"{}"[..], b"k8s\0\x0a", b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"k8s\0\x0d"]
        {
            assert_eq!(decode(malformed), Err(ProtobufError::Malformed), "{malformed:?}");
        }
    }

    #[test]
    fn each_type_of_a_field_is_declared() {
        let scalars = ["text", "bytes", "int", "bool", "quantity", "intstr", "time", "raw", "-"];
        for field in MESSAGES.lines().flat_map(|line| line.split(' ').skip(1)) {
            let kind = field.split_once(':').unwrap().1.trim_end_matches(['[', ']', '{', '}', '?']);
            assert!(scalars.contains(&kind) || line(kind).is_some(), "{field}");
        }
    }
}

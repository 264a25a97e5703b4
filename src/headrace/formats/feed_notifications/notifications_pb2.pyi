from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientMessage(_message.Message):
    __slots__ = ("subscribe", "heartbeat", "unsubscribe")
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    subscribe: Subscribe
    heartbeat: Heartbeat
    unsubscribe: Unsubscribe
    def __init__(self, subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("tenant_id", "resource_types")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    resource_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant_id: _Optional[str] = ..., resource_types: _Optional[_Iterable[str]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("tenant_id",)
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    def __init__(self, tenant_id: _Optional[str] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("subscription_confirmed", "event_notification", "server_heartbeat")
    SUBSCRIPTION_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    EVENT_NOTIFICATION_FIELD_NUMBER: _ClassVar[int]
    SERVER_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    subscription_confirmed: SubscriptionConfirmed
    event_notification: EventNotification
    server_heartbeat: ServerHeartbeat
    def __init__(self, subscription_confirmed: _Optional[_Union[SubscriptionConfirmed, _Mapping]] = ..., event_notification: _Optional[_Union[EventNotification, _Mapping]] = ..., server_heartbeat: _Optional[_Union[ServerHeartbeat, _Mapping]] = ...) -> None: ...

class SubscriptionConfirmed(_message.Message):
    __slots__ = ("tenant_id", "latest_sequence_number")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    LATEST_SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    latest_sequence_number: int
    def __init__(self, tenant_id: _Optional[str] = ..., latest_sequence_number: _Optional[int] = ...) -> None: ...

class EventNotification(_message.Message):
    __slots__ = ("tenant_id", "latest_sequence_number", "affected_resource_types")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    LATEST_SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    AFFECTED_RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    latest_sequence_number: int
    affected_resource_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant_id: _Optional[str] = ..., latest_sequence_number: _Optional[int] = ..., affected_resource_types: _Optional[_Iterable[str]] = ...) -> None: ...

class ServerHeartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

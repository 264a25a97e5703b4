"""Messages of `proto/epistola/notifications/v1`, as the compiler made them (`make proto`).

Needs the extra `grpc`: imported by who speaks gRPC, and by nobody else.
"""

from headrace.formats.feed_notifications.notifications_pb2 import (
    DESCRIPTOR,
    ClientMessage,
    EventNotification,
    Heartbeat,
    ServerHeartbeat,
    ServerMessage,
    Subscribe,
    SubscriptionConfirmed,
    Unsubscribe,
)

SERVICE = "epistola.notifications.v1.EventNotificationService"
METHOD = "SubscribeToNotifications"

__all__ = [
    "DESCRIPTOR",
    "METHOD",
    "SERVICE",
    "ClientMessage",
    "EventNotification",
    "Heartbeat",
    "ServerHeartbeat",
    "ServerMessage",
    "Subscribe",
    "SubscriptionConfirmed",
    "Unsubscribe",
]

"""The console channel: chats in terminals, delivered by the gateway (`gateway.consoles`)."""

"""Output that has harmed terminals or their users, by its kind."""

#: Sequences that have harmed terminals or their users, by kind.
ESCAPES = {
    "title of two lines": b"\x1b]0;one\ntwo\x1b[31m\x07\x1b]2;\xc2\x9b31m\xe2\x80\xae\x07",
    "title reported back": b"\x1b]0;;rm -rf ~;\x07\x1b[21t\x1b[20t",
    "script in a link": b"\x1b]8;;javascript:alert(1)\x07x\x1b]8;;data:text/html,<script>\x07y",
    "link with controls": "\x1b]8;;https://a/\u202e\u0085\x07x\x1b]8;;\x07".encode(),
    "link without end": b"\x1b]8;;https://a/" + b"b" * 5000 + b"\x07x",
    "clipboard read": b"\x1b]52;c;?\x07\x1b]52;;?\x1b\\",
    "clipboard of no text": b"\x1b]52;c;!!!!\x07\x1b]52;c;/////w==\x07",
    "answer on demand": b'\x05\x1bP$q"p\x1b\\\x1bP+q41;42\x1b\\\x1b[>c\x1b[=c',
    "answer with words": b"\x1bP+q" + b"726d202d7266".upper() + b"\x1b\\",
    "kitty graphics": b"\x1b_Gf=100,a=T,t=f;L2V0Yy9wYXNzd2Q=\x1b\\\x1b_Ga=q,i=1;AAAA\x1b\\",
    "sixel": b"\x1bPq#0;2;0;0;0#0~~@@vv@@~~$\x1b\\",
    "c1 bytes": bytes(range(0x80, 0xA0)) * 3,
    "c1 in utf-8": "".join(map(chr, range(0x80, 0xA0))).encode(),
    "c0": bytes(range(0x20)) + b"\x7f",
    "bidi": "a\u202eb\u2066c\u2069\u200f\u061cd".encode(),
    "invisible": "\u200b\u200c\u200d\ufeff\u2060\u180e\U000e0001\U000e0041".encode(),
    "line separators": "a\u2028b\u2029c\u0085d".encode(),
    "broken utf-8": b"\xff\xfe\xc0\x80\xed\xa0\x80\xf8\x88\x80\x80\x80\xe6",
    "marks without end": ("a" + "\u0301" * 5000).encode(),
    "joiners without end": ("👨\u200d" * 5000).encode(),
    "huge numbers": b"\x1b[999999999999;999999999999H\x1b[99999999b\x1b[4294967295S\x1b["
    + b"1;" * 9999
    + b"m",
    "huge repeat": b"x\x1b[65535b" * 100,
    "tabs and regions": b"\x1b[3g\x1b[9999;1r\x1b[?69h\x1b[9;2s\x1b[?6h\x1b[H\x1bH",
    "column mode": b"\x1b[?40h\x1b[?3h\x1b[?3l\x1bc",
    "full reset in the middle": b"\x1b[?1049h\x1b[?2004h\x1bc\x1b[!p",
    "held forever": b"\x1b[?2026h",
    "unknown osc": b"\x1b]7501;"
    + "\u202e\x01\u0085".encode()
    + b"\x07\x1b]99999999999;x\x07\x1b];\x07\x1b]x\x07",
    "notification": b"\x1b]9;\xe2\x80\xaehi\x01\x07\x1b]777;notify;a\x1b[31m;b\x07",
    "modes of all kinds": b"".join(b"\x1b[?%dh" % mode for mode in range(2100)),
    "cursor styles": b"".join(b"\x1b[%d q" % style for style in range(20)),
    "window operations": b"\x1b[2t\x1b[3;0;0t\x1b[8;500;500t\x1b[9;1t\x1b[14t\x1b[18t\x1b[22;23t",
    "keys that are programmed": b"\x1bP1;1|17/726d202d7266207e0d\x1b\\\x1b[24~",
    "files of iTerm": b"\x1b]1337;File=name=L2V0Yy9wYXNzd2Q=;inline=1:AAAA\x07"
    b"\x1b]1337;RequestUpload=format=tgz\x07\x1b]50;SetFont\x07",
    "printing": b"\x1b[5isecret\x1b[4i\x1b[i\x1b[?5i",
    "links to programs": b"\x1b]8;;file:///etc/passwd\x07x\x1b]8;;ssh://-oProxyCommand=x\x07y"
    b"\x1b]8;;vscode://x\x07z\x1b]8;;//evil.example/\x07w\x1b]8;;\x07",
}

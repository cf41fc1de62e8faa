import time

import jwt

print(jwt.encode({"user": "ann", "iat": int(time.time())}, "secret", algorithm="HS256"))

import sys

import jwt

try:
    print("accepted", jwt.decode(sys.argv[1], "secret", algorithms=["HS256"]))
except jwt.InvalidTokenError as error:
    print("refused:", error)

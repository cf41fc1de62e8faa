from faker import Faker

print("born", Faker().date_of_birth(minimum_age=18))
